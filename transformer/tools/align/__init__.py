"""Links between the words of sentences and of their translations, and their error rate."""
