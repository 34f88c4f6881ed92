"""Reports faults in the text of a config."""
