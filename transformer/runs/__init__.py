"""A run on disk: its directory, checkpoints, metrics and curves, and how it is loaded."""
