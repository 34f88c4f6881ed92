"""Frozen configs, Flax layers, and the Transformer made of them."""
