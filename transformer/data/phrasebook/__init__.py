"""A small English-French corpus from a grammar, for runs without a download.

Reading order: `lexicon` and `verbs` (words), `grammar` (agreement), `clauses`, `statements`
and `sentences` (patterns), `corpus` (splits and the held-out rule), and `builder`, the only
file of the package that imports TFDS.
"""
