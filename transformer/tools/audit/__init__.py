"""Reports faults in the text of a config, and writes the text without them."""
