"""A small English-French corpus from a grammar, for runs without a download.

  --config.data.source=transformer.tools.phrasebook:Phrasebook

Each sentence combines pairs of words: an adjective and a noun, a verb and its object, or a verb
without one and its subject. A checksum holds out one in nine of all possible pairs. Sentences with
such a pair are only in `validation` and `test`, sentences without one only in `train`. So each
evaluated sentence has a combination that training never shows.

Reading order: `words`, `grammar` (agreement), `small_words`, `draws` (parts of sentences),
`sentences` (patterns), and this file (splits).
"""

import hashlib
import zlib
from random import Random

from transformer.errors import UserError, shown
from transformer.tools.phrasebook.sentences import Writer

SIZES = {'train': 40_000, 'validation': 500, 'test': 500}
_LONGEST = 16  # English words


class Phrasebook:
  """The pairs of a split, the same on every machine."""

  def __init__(self, data, split: str):
    """Writes the sentences of a split in the languages of `config.data`, in some seconds."""
    languages = data.source_language, data.target_language
    if split not in SIZES or {*languages} != {'en', 'fr'}:
      raise UserError(
        f'the phrasebook has the splits {", ".join(SIZES)} in en and fr; got '
        f'{shown(split)} with data.source_language={languages[0]} and '
        f'data.target_language={languages[1]}'
      )
    self.name = f'phrasebook:{split}'
    self._pairs = [
      pair if languages[0] == 'en' else pair[::-1] for pair in pairs_of(split)
    ]
    self.fingerprint = hashlib.sha256(repr(self._pairs).encode()).hexdigest()

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, index: slice) -> list[tuple[str, str]]:
    return self._pairs[index]


def pairs_of(split: str) -> list[tuple[str, str]]:
  """Returns English sentences, all different, and their French translations."""
  writer = Writer(Random(f'phrasebook {split}'))
  pairs = {}
  while len(pairs) < SIZES[split]:
    english, french = writer.sentence()
    own = 'train'
    if any(map(held_out, writer.pairs)):
      own = 'test' if zlib.crc32(english.encode()) % 2 else 'validation'
    if len(english.split()) <= _LONGEST and split == own:
      pairs[english] = french
  return list(pairs.items())


def held_out(pair: tuple[str, str]) -> bool:
  """Returns whether training never shows an (adjective, noun) or a (verb, noun) pair."""
  return zlib.crc32(' '.join(pair).encode()) % 9 == 0
