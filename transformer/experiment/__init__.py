"""From a config to the last checkpoint: the training loop, validation and trackers."""
