"""MLflow is told of a run."""
