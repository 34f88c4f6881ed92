"""Batches by step: packed, mixed from several corpora, and augmented."""
