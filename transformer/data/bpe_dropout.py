"""Training batches with BPE-dropout: sentences are cut into other pieces in each round.

How a pair is cut is a function of (seed, round, pair). The cut changes the pair's lengths, so
the rows that `TrainingBatches` plans no longer fit. The pairs are therefore packed again, one
window at a time. A window is a fixed number of planned batches, and its pairs are packed into
a fixed number of real batches. So the batch of a step depends on one window only.
"""

import functools
import math
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from transformer.data.batch import Batch
from transformer.data.batches import BATCHES_AHEAD, TrainingBatches, assemble, take
from transformer.data.bpe_merges import Merges
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.data.packing import Packing
from transformer.data.prefetch import prefetch
from transformer.data.shuffling import mix
from transformer.data.vocabularies import RunVocabulary, is_shared

_WINDOW_PAIRS = 32_768  # approximate number of pairs that are cut and packed together
# Spare rows in each window, as a share of the rows that the first window needs.
_SPARE = 0.01


class _Window(NamedTuple):
  pairs: EncodedPairs
  packing: Packing


class DropoutBatches:
  """The batches of a run by step, like `TrainingBatches`, with BPE-dropout.

  An epoch of the plan uses every pair as often as an epoch without dropout. It takes more
  real batches, because sentences have more pieces when merges are left out.

  Attributes:
    shape: the shape of every batch.
    planned: planned batches in a window; an epoch of a small corpus is one window.
    real: real batches in a window.
  """

  def __init__(self, plan: TrainingBatches, vocabulary: RunVocabulary, rate: float,
               seed: int):
    """Cuts the first window, to find the number of real batches.

    Args:
      plan: the planned batches.
      vocabulary: the vocabulary that the pairs are encoded with.
      rate: the probability that a merge is left out, above 0.
      seed: the run's root seed.
    """
    self.shape = plan.shape
    source = Merges(vocabulary.source)
    self._merges = source, source if is_shared(vocabulary) else Merges(vocabulary.target)
    self._plan, self._rate, self._seed = plan, rate, seed
    windows_in_epoch = max(round(sum(map(len, plan.corpora)) / _WINDOW_PAIRS), 1)
    self.planned = -(-plan.batches_in_epoch // windows_in_epoch)
    planned, cut = self._cut(0)
    needed = self._packed(planned, cut, len(planned[0])).packing.num_rows
    needed = needed * (1 + _SPARE) / self.shape.rows
    self.real = max(math.ceil(needed), self.planned)
    self._lock = threading.Lock()
    self._window = functools.lru_cache(maxsize=2)(self._make_window)

  def __getitem__(self, step: int) -> Batch:
    """Returns the batch of a step."""
    number, index = divmod(step, self.real)
    with self._lock:
      window = self._window(number)
    places = np.arange(index, window.packing.num_rows, self.real)
    return assemble([window.pairs], window.packing.deal(places, self._seed, number), self.shape)

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Yields batches `start` … `stop − 1`, assembled ahead of time."""
    return prefetch(self.__getitem__, range(start, stop), BATCHES_AHEAD)

  def _make_window(self, number: int) -> _Window:
    """Returns the pairs of a window, cut and packed into at most its number of rows."""
    planned, cut = self._cut(number)
    whole = len(planned[0])
    window = self._packed(planned, cut, whole)
    # Very rarely, there are too many rows. Then some pairs stay as planned, until the rows fit.
    # If all pairs stay as planned, the rows always fit.
    for sixteenths in range(15, -1, -1):
      if window.packing.num_rows <= self.real * self.shape.rows:
        break
      window = self._packed(planned, cut, whole * sixteenths // 16)
    return window

  def _packed(self, planned: list[Sentences], cut: list[Sentences], number: int) -> _Window:
    """Packs the pairs, the first `number` as cut and the others as planned."""
    source, target = (_choose(np.arange(len(one)) < number, one, other)
                      for one, other in zip(cut, planned, strict=True))
    _, *capacities = self.shape
    return _Window(EncodedPairs(source, target, {}),
                   Packing(source.lengths, target.lengths, *capacities))

  def _cut(self, window: int) -> tuple[list[Sentences], list[Sentences]]:
    """Returns both sides of a window's pairs, as planned and as cut."""
    dealt = [self._plan.deal(step) for step in range(window * self.planned,
                                                     (window + 1) * self.planned)]
    pairs = np.concatenate([rows.pairs for rows, _ in dealt])
    rounds = np.concatenate([each for _, each in dealt])
    planned, cut = [], []
    for side, capacity in enumerate(self.shape[1:]):
      lengths, tokens = take([(each.source, each.target)[side] for each in self._plan.corpora],
                             pairs)
      planned.append(Sentences.end_to_end(tokens, lengths.astype(np.int32)))
      keys = np.full(len(pairs), 2 * self._seed + side, np.uint64)
      for part in (rounds, pairs):
        keys = mix(keys) + part.astype(np.uint64)
      cut.append(self._merges[side].cut(planned[side], mix(keys), self._rate))
      # A sentence that no longer fits into a row stays as planned.
      fits = cut[side].lengths <= capacity
      cut[side] = _choose(fits, cut[side], planned[side])
    return planned, cut


def _choose(first: np.ndarray, one: Sentences, other: Sentences) -> Sentences:
  """Returns the sentences of `one` where `first` is True, and of `other` elsewhere."""
  return Sentences(np.concatenate([one.tokens, other.tokens]),
                   np.where(first, one.starts, len(one.tokens) + other.starts),
                   np.where(first, one.lengths, other.lengths))
