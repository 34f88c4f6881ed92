"""A tracker for Weights & Biases."""
