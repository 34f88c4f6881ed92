"""A tracker for MLflow."""
