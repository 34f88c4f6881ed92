"""Translation and its scores."""
