"""Sources of sentence pairs, and lines of text files."""
