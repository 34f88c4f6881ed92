"""The choice of a translation from an n-best list: minimum Bayes risk."""
