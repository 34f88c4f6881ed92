"""A small English-French corpus from a grammar of our own, for runs that need no download.

Reading order: `lexicon` (words), `grammar` (phrases and agreement), `sentences` (patterns),
`corpus` (splits and the held-out rule), `builder` (the TFDS builder, the one file of the
package that imports TFDS).
"""
