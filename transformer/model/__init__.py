"""Frozen configs, Flax layers, and the Transformer."""
