"""Variations: what happens to training sentences each time that they are used.

`data.variations` names functions of one's own; docs/own-parts.md has an example. What becomes of a
sentence depends on nothing but its side, its tokens and its key, which is a function of (seed,
round, pair). So a resumed run has the batches of an uninterrupted one.
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from transformer import own_code
from transformer.data.batch import Batch
from transformer.data.batches.packing import Packing, Rows
from transformer.data.batches.shuffling import mix
from transformer.data.batches.training_batches import BatchesByStep, TrainingBatches, assemble, take
from transformer.data.encoding import EncodedPairs, Sentences, count_from_zero
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

# (0 for sources and 1 for targets, sentences, uint64 keys of the sentences) -> other sentences in
# the same order.
Vary = Callable[[int, Sentences, np.ndarray], Sentences]

_WINDOW_PAIRS = 32_768  # approximate number of pairs that are varied and packed together
_FEWEST_BATCHES = 16  # in a window, which has one more than planned: few would be half empty
_SPARE = 0.01  # spare rows in each window, as a share of the rows that the first window needs


def fractions(keys: np.ndarray) -> np.ndarray:
  """Returns a number in [0, 1) for each key, float64, to choose a share of the sentences by."""
  return (keys >> np.uint64(11)) * 2.0 ** -53


def replaced(sentences: Sentences, chosen: np.ndarray, texts: Sequence[str],
             vocabulary: Vocabulary) -> Sentences:
  """Returns sentences of which the chosen ones, ascending numbers, have other texts."""
  changed = Sentences.ended(vocabulary.encode_batch(texts))
  numbers = np.arange(len(sentences))
  numbers[chosen] = len(sentences) + np.arange(len(chosen))
  return take([sentences, changed], numbers)


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


class VariedBatches(BatchesByStep):
  """The batches of a plan by step, of varied sentences.

  Varied pairs have other lengths, so the planned rows no longer fit. A window is a fixed number of
  `planned` batches, whose pairs are packed again into a fixed number of `real` ones. So the batch
  of a step depends on one window only. An epoch of a small corpus is one window.
  """

  def __init__(self, plan: TrainingBatches, variations: Sequence[Vary], seed: int):
    self.shape = plan.shape
    self._plan, self._variations, self._seed = plan, variations, seed
    windows_in_epoch = max(round(sum(map(len, plan.corpora)) / _WINDOW_PAIRS), 1)
    self.planned = min(max(-(-plan.batches_in_epoch // windows_in_epoch), _FEWEST_BATCHES),
                       plan.batches_in_epoch)
    rows = self._pack(self._vary(0)[1]).num_rows
    self.real = max(math.ceil(rows * (1 + _SPARE) / self.shape.rows), self.planned)
    self._window = functools.lru_cache(maxsize=2)(self._make_window)

  def __getitem__(self, step: int) -> Batch:
    number, index = divmod(step, self.real)
    pairs, rows = self._window(number)
    places = np.arange(index, len(rows.sizes), self.real)
    sizes = rows.sizes[places]
    chosen = rows.pairs[np.repeat(rows.starts[places], sizes) + count_from_zero(sizes)]
    return assemble([pairs], Rows(chosen, sizes), self.shape)

  def _make_window(self, number: int) -> tuple[EncodedPairs, Rows]:
    """Returns the pairs of a window, varied, and their rows.

    Very rarely, there are too many rows. Then some pairs stay as planned, until the rows fit, and
    in the end all, in the planned rows.
    """
    planned, varied, sizes = self._vary(number)
    pairs = np.arange(len(planned[0]))
    for sixteenths in range(16, 0, -1):
      changed = pairs < len(pairs) * sixteenths // 16
      sides = [_choose(changed, *versions) for versions in zip(varied, planned, strict=True)]
      packing = self._pack(sides)
      if packing.num_rows <= self.real * self.shape.rows:
        rows = packing.deal(np.arange(packing.num_rows), self._seed, number)
        return EncodedPairs(*sides, {}), rows
    return EncodedPairs(*planned, {}), Rows(pairs, sizes)

  def _pack(self, sides: Sequence[Sentences]) -> Packing:
    return Packing(*(side.lengths for side in sides), *self.shape[1:])

  def _vary(self, window: int) -> tuple[list[Sentences], list[Sentences], np.ndarray]:
    """Returns both sides of a window's pairs, as planned and varied, and the sizes of its rows."""
    dealt = [self._plan.deal(step) for step in range(window * self.planned,
                                                     (window + 1) * self.planned)]
    pairs = np.concatenate([rows.pairs for rows, _ in dealt])
    rounds = np.concatenate([numbers for _, numbers in dealt])
    planned = [take([corpus.source for corpus in self._plan.corpora], pairs),
               take([corpus.target for corpus in self._plan.corpora], pairs)]
    varied = []
    for side in range(2):
      keys = np.full(len(pairs), 2 * self._seed + side, np.uint64)
      for part in (rounds, pairs):
        keys = mix(keys) + part.astype(np.uint64)
      keys, changed = mix(keys), planned[side]
      for vary in self._variations:
        changed = vary(side, changed, keys)
      # A row of targets has data.max_length positions, the most that any sentence may have.
      short = changed.lengths <= self.shape.target_length
      varied.append(_choose(short, changed, planned[side]))
    return planned, varied, np.concatenate([rows.sizes for rows, _ in dealt])


def _choose(first: np.ndarray, one: Sentences, other: Sentences) -> Sentences:
  """Returns the sentences of `one` where `first` is True, and of `other` elsewhere."""
  return Sentences(np.concatenate([one.tokens, other.tokens]),
                   np.where(first, one.starts, len(one.tokens) + other.starts),
                   np.where(first, one.lengths, other.lengths))
