"""Generates the sentences of the corpus, and assigns each to a split.

The held-out rule: each sentence records the word pairs that it combines, as English lemmas.
A pair is (adjective, noun), side by side or with "to be" between them, or (verb, direct
object). A checksum holds out about a ninth of all possible pairs. Sentences with a held-out
pair are only in validation and test, sentences without one only in train. So each evaluated
sentence has a combination that training never shows, of words that training shows often.
"""

import dataclasses
import zlib
from collections import Counter
from random import Random

from transformer.data.phrasebook.grammar import spell
from transformer.data.phrasebook.sentences import some_sentence

SIZES = {'train': 20_000, 'validation': 500, 'test': 500}
SEED = 'phrasebook/en-fr'
_LONGEST = 16  # English words
# The fewest occurrences in train of each word of an evaluated sentence.
LEAST_COUNT = 30


@dataclasses.dataclass(frozen=True)
class Pair:
  """A sentence in both languages, its word pairs, and the held-out pairs among them."""

  en: str
  fr: str
  held_out: frozenset[tuple[str, str]]
  pairs: frozenset[tuple[str, str]]


def held_out(pair: tuple[str, str]) -> bool:
  """Returns whether an (adjective, noun) or (verb, noun) pair of lemmas is held out."""
  return zlib.crc32(' '.join(pair).encode()) % 9 == 0


def tokens(sentence: str) -> list[str]:
  """Returns the words in lower case, split at spaces, apostrophes, commas and the end mark."""
  return sentence.lower().replace("'", "' ").replace(',', ' ,').rstrip('.?!').split()


def generate() -> dict[str, list[Pair]]:
  """Returns the three splits. No English or French sentence occurs twice in them.

  Draws train first, because evaluated sentences are limited to words that train shows
  `LEAST_COUNT` times. Evaluated sentences alternate between validation and test.
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
