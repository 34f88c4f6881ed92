"""The baselines: the same work in other systems."""
