"""Training curves of runs."""
