"""Text: where sentence pairs come from, and the lines of files."""
