"""A reporter for MLflow."""
