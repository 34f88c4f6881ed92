"""A reporter for Weights & Biases."""
