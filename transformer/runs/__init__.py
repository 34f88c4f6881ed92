"""A run on disk: its directory, checkpoints and metrics, and how it is loaded and resumed."""
