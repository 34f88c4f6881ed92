"""From a config to the last checkpoint: the loop, evaluations and reports."""
