"""The corpus: which sentences are generated, and which split each belongs to.

The held-out rule. Every sentence records the pairs that it combines: (adjective, noun), whether
beside it or after to be, and (verb, direct object), by their English lemmas, so all inflections
of a pair go together. About a ninth of all possible pairs are held out, by their checksum alone.
A sentence without a held-out pair may be in train; a sentence with one may only be in validation
or test. So every evaluated sentence holds a combination that no training sentence shows, made of
words that the training sentences show many times.
"""

import dataclasses
import zlib
from collections import Counter
from random import Random

from transformer.data.phrasebook.grammar import spell
from transformer.data.phrasebook.sentences import some_sentence

SIZES = {'train': 20_000, 'validation': 500, 'test': 500}
SEED = 'phrasebook/en-fr'
# In English words.
_LONGEST = 16
# An evaluated sentence uses only words that train shows at least so often.
LEAST_COUNT = 30


@dataclasses.dataclass(frozen=True)
class Pair:
  """A sentence in both languages, and the held-out combinations in it."""

  en: str
  fr: str
  held_out: frozenset[tuple[str, str]]
  pairs: frozenset[tuple[str, str]]


def held_out(pair: tuple[str, str]) -> bool:
  """Whether an (adjective, noun) or (verb, noun) pair of English lemmas is kept from train."""
  return zlib.crc32(' '.join(pair).encode()) % 9 == 0


def tokens(sentence: str) -> list[str]:
  """Words in lower case: apart at spaces, and at what French elides or ends a sentence with."""
  return sentence.lower().replace("'", "' ").replace(',', ' ,').rstrip('.?!').split()


def generate() -> dict[str, list[Pair]]:
  """The three splits: no English and no French sentence occurs twice in all of them.

  Train is drawn in full first, so that evaluated sentences can be limited to words that it
  shows `LEAST_COUNT` times; these then alternate between validation and test.
  """
  rng = Random(SEED)
  seen: tuple[set[str], set[str]] = (set(), set())

  def fresh(evaluated: bool) -> Pair:
    while True:
      phrase, mark = some_sentence(rng)
      kept = frozenset(filter(held_out, phrase.pairs))
      if bool(kept) != evaluated:
        continue
      en, fr = spell(phrase, mark)
      if len(en.split()) > _LONGEST or en in seen[0] or fr in seen[1]:
        continue
      seen[0].add(en)
      seen[1].add(fr)
      return Pair(en, fr, kept, phrase.pairs)

  splits = {'train': [fresh(False) for _ in range(SIZES['train'])], 'validation': [], 'test': []}
  counts = {language: Counter(token for pair in splits['train']
                              for token in tokens(getattr(pair, language)))
            for language in ('en', 'fr')}
  for i in range(SIZES['validation'] + SIZES['test']):
    name = ('validation', 'test')[i % 2]
    pair = fresh(True)
    while any(counts[language][token] < LEAST_COUNT
              for language in ('en', 'fr') for token in tokens(getattr(pair, language))):
      pair = fresh(True)
    splits[name].append(pair)
  return splits
