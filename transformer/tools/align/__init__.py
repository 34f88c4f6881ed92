"""Links between the words of sentences and of their translations."""
