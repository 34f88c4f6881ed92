"""Variations: what happens to training sentences each time that they are used.

`data.variations` names functions of one's own. Each is called once, with the run's vocabulary and
the numbers that the config gives it, and returns a function of sentences; docs/own-parts.md has an
example.

What becomes of a sentence must depend on nothing but its side, its tokens and its key, which is a
function of (seed, round, pair). Then a resumed run has the batches of an uninterrupted one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from transformer import own_code
from transformer.data.batches.shuffling import mix
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

# (0 for sources and 1 for targets, sentences, uint64 keys of the sentences) -> other sentences in
# the same order.
Vary = Callable[[int, Sentences, np.ndarray], Sentences]


def fractions(keys: np.ndarray) -> np.ndarray:
  """Returns a number in [0, 1) for each key, float64, to choose a share of the sentences by."""
  return (keys >> np.uint64(11)) * 2.0 ** -53


def replaced(sentences: Sentences, chosen: np.ndarray, texts: Sequence[str],
             vocabulary: Vocabulary) -> Sentences:
  """Returns sentences of which the chosen ones, ascending numbers, have other texts."""
  changed = Sentences.ended(vocabulary.encode_batch(texts))
  starts, lengths = sentences.starts.copy(), sentences.lengths.copy()
  starts[chosen], lengths[chosen] = len(sentences.tokens) + changed.starts, changed.lengths
  both = Sentences(np.concatenate([sentences.tokens, changed.tokens]), starts, lengths)
  return Sentences.end_to_end(both.take(np.arange(len(both))), lengths)


def own_variations(settings: Sequence[own_code.Setting], vocabulary: RunVocabulary) -> list[Vary]:
  """Returns the variations that `data.variations` names."""
  return [_checked(own_code.name_of(setting), own_code.build(setting, 'variation', vocabulary),
                   place) for place, setting in enumerate(settings)]


def _checked(spec: str, vary: Vary, place: int) -> Vary:
  def checked(side: int, sentences: Sentences, keys: np.ndarray) -> Sentences:
    # Variations that draw alike would change the same sentences.
    own_keys = mix(keys + np.uint64(place)) if place else keys
    with own_code.guarded(f'the variation {spec} failed'):
      varied = vary(side, sentences, own_keys)
    if not isinstance(varied, Sentences) or len(varied) != len(sentences):
      raise UserError(f'the variation {spec} must return Sentences, as many as it got')
    return varied
  return checked
