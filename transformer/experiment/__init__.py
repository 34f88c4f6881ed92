"""From a config to the last checkpoint: wiring, the loop, and what it reports."""
