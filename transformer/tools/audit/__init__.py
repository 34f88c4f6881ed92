"""Reports problems in the dataset of a config, and writes the text without them."""
