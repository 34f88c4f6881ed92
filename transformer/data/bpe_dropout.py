"""Batches of sentences that are cut into other pieces each time: BPE-dropout.

How a pair is cut is a function of (seed, round, pair). Its lengths then differ
from those that `TrainingBatches` packs by, so some batches of that plan, a
window, are taken apart and packed again: always the same number of planned
batches into the same number of real ones, so that the batch of a step is found
without a look at any but its own window.
"""

import functools
import math
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from transformer.data.batch import Batch
from transformer.data.batches import TrainingBatches, assemble, made_ahead, take
from transformer.data.bpe_merges import Merges
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.data.packing import Packing
from transformer.data.shuffling import mix
from transformer.data.vocabulary import Vocabulary

_WINDOW_PAIRS = 32_768  # about so many are cut and packed together
# Rows more than the first window needs, for others that need more.
_SPARE = 0.01


class _Window(NamedTuple):
  pairs: EncodedPairs
  packing: Packing


class DropoutBatches:
  """All batches of a run by number, as `TrainingBatches` has them, with BPE-dropout.

  An epoch of the plan holds every pair as often as without dropout, and is spread
  over more batches, since pieces that are not merged are more.

  Attributes:
    shape: of every batch.
    planned: planned batches in a window; an epoch of a small corpus is one window.
    real: batches that they become.
  """

  def __init__(self, plan: TrainingBatches, vocabulary: Vocabulary, rate: float, seed: int):
    """Prepares to cut.

    Args:
      plan: which pairs come when.
      vocabulary: what the pairs were encoded with.
      rate: probability of leaving out a merge, above 0.
      seed: the run's root seed.
    """
    self.shape = plan.shape
    self._plan, self._merges, self._rate, self._seed = plan, Merges(vocabulary), rate, seed
    windows_in_epoch = max(round(sum(map(len, plan.corpora)) / _WINDOW_PAIRS), 1)
    self.planned = -(-plan.batches_in_epoch // windows_in_epoch)
    planned, cut = self._cut(0)
    needed = self._packed(planned, cut, len(planned[0])).packing.num_rows
    needed = needed * (1 + _SPARE) / self.shape.rows
    self.real = max(math.ceil(needed), self.planned)
    self._lock = threading.Lock()
    self._window = functools.lru_cache(maxsize=2)(self._make_window)

  def __getitem__(self, step: int) -> Batch:
    """The batch of step `step`."""
    number, index = divmod(step, self.real)
    with self._lock:
      window = self._window(number)
    places = np.arange(index, window.packing.num_rows, self.real)
    return assemble([window.pairs], window.packing.deal(places, self._seed, number), self.shape)

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Batches `start` … `stop − 1` in order, made ahead of time."""
    return made_ahead(self.__getitem__, start, stop)

  def _make_window(self, number: int) -> _Window:
    """The pairs of a window, cut and packed into no more rows than it has."""
    planned, cut = self._cut(number)
    whole = len(planned[0])
    window = self._packed(planned, cut, whole)
    # Hardly ever: some stay as they were planned, and all of those would fit.
    for sixteenths in range(15, -1, -1):
      if window.packing.num_rows <= self.real * self.shape.rows:
        break
      window = self._packed(planned, cut, whole * sixteenths // 16)
    return window

  def _packed(self, planned: list[Sentences], cut: list[Sentences], number: int) -> _Window:
    """Packs pairs of which the first `number` are cut."""
    source, target = (_choose(np.arange(len(one)) < number, one, other)
                      for one, other in zip(cut, planned, strict=True))
    _, *capacities = self.shape
    return _Window(EncodedPairs(source, target, {}),
                   Packing(source.lengths, target.lengths, *capacities))

  def _cut(self, window: int) -> tuple[list[Sentences], list[Sentences]]:
    """Both sides of the pairs of a window, as planned and as cut."""
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
      cut.append(self._merges.cut(planned[side], mix(keys), self._rate))
      # What no longer fits into a row stays as it was.
      fits = cut[side].lengths <= capacity
      cut[side] = _choose(fits, cut[side], planned[side])
    return planned, cut


def _choose(first: np.ndarray, one: Sentences, other: Sentences) -> Sentences:
  """Sentences of `one` where `first` is True, and of `other` elsewhere."""
  return Sentences(np.concatenate([one.tokens, other.tokens]),
                   np.where(first, one.starts, len(one.tokens) + other.starts),
                   np.where(first, one.lengths, other.lengths))
