"""Word alignments of sentences and their translations."""
