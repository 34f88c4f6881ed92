"""Weights & Biases is told of a run."""
