"""A small English-French corpus from a grammar, for runs without a download.

  --config.data.source=transformer.tools.phrasebook:Phrasebook

Reading order: `words`, `grammar` (agreement), `sentences` (patterns), `corpus` (splits).
"""

from transformer.tools.phrasebook.corpus import Phrasebook

__all__ = ['Phrasebook']
