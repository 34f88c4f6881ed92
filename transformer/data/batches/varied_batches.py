"""Training batches of sentences that vary from round to round: BPE-dropout, noise in sources.

How a pair varies is a function of (seed, round, pair). That changes the pair's lengths, so the
rows that `TrainingBatches` plans no longer fit. The pairs are therefore packed again, one
window at a time. A window is a fixed number of planned batches, and its pairs are packed into
a fixed number of real batches. So the batch of a step depends on one window only.
"""

import functools
import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.batch import Batch
from transformer.data.batches.packing import Packing, Rows
from transformer.data.batches.shuffling import mix
from transformer.data.batches.training_batches import BatchesByStep, TrainingBatches, assemble, take
from transformer.data.batches.variations import Vary
from transformer.data.encoding import EncodedPairs, Sentences, count_from_zero

_WINDOW_PAIRS = 32_768  # approximate number of pairs that are varied and packed together
# A window has one real batch or so more than planned ones. With few, batches would be half empty.
_FEWEST_BATCHES = 16
# Spare rows in each window, as a share of the rows that the first window needs.
_SPARE = 0.01


class _PlannedRows(NamedTuple):
  """The rows of a window as they were planned, in the place of a packing.

  Attributes:
    sizes: int [rows], the number of pairs in each row.
  """

  sizes: np.ndarray

  @property
  def num_rows(self) -> int:
    return len(self.sizes)

  def deal(self, rows: np.ndarray, *key: int) -> Rows:
    """Returns the pairs of some rows, which the plan has shuffled."""
    del key
    sizes = self.sizes[rows]
    firsts = np.cumsum(self.sizes) - self.sizes
    return Rows(np.repeat(firsts[rows], sizes) + count_from_zero(sizes), sizes)


class _Window(NamedTuple):
  pairs: EncodedPairs
  packing: Packing | _PlannedRows


class VariedBatches(BatchesByStep):
  """The batches of a run by step, like `TrainingBatches`, of varied sentences.

  An epoch of the plan uses every pair as often as the plan alone would. It takes more real batches,
  because varied sentences have more pieces.

  Attributes:
    shape: the shape of every batch.
    planned: planned batches in a window; an epoch of a small corpus is one window.
    real: real batches in a window.
  """

  def __init__(self, plan: TrainingBatches, variations: Sequence[Vary], seed: int):
    """Varies the first window, to find the number of real batches.

    Args:
      plan: the planned batches.
      variations: what happens to a sentence, one after the other.
      seed: the run's root seed.
    """
    self.shape = plan.shape
    self._plan, self._variations, self._seed = plan, variations, seed
    windows_in_epoch = max(round(sum(map(len, plan.corpora)) / _WINDOW_PAIRS), 1)
    self.planned = min(max(-(-plan.batches_in_epoch // windows_in_epoch), _FEWEST_BATCHES),
                       plan.batches_in_epoch)
    planned, varied, _ = self._vary(0)
    needed = self._packed(planned, varied, len(planned[0])).packing.num_rows
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

  def _make_window(self, number: int) -> _Window:
    """Returns the pairs of a window, varied and packed into at most its number of rows."""
    planned, varied, sizes = self._vary(number)
    # Very rarely, there are too many rows. Then some pairs stay as planned, until the rows fit.
    for sixteenths in range(16, 0, -1):
      window = self._packed(planned, varied, len(planned[0]) * sixteenths // 16)
      if window.packing.num_rows <= self.real * self.shape.rows:
        return window
    # The same pairs packed again may need more rows than the plan has.
    return _Window(EncodedPairs(*planned, {}), _PlannedRows(sizes))

  def _packed(self, planned: list[Sentences], varied: list[Sentences], number: int) -> _Window:
    """Packs the pairs, the first `number` varied and the others as planned."""
    source, target = (_choose(np.arange(len(one)) < number, one, other)
                      for one, other in zip(varied, planned, strict=True))
    _, *capacities = self.shape
    return _Window(EncodedPairs(source, target, {}),
                   Packing(source.lengths, target.lengths, *capacities))

  def _vary(self, window: int) -> tuple[list[Sentences], list[Sentences], np.ndarray]:
    """Returns both sides of a window's pairs, as planned and varied, and the sizes of its rows."""
    dealt = [self._plan.deal(step) for step in range(window * self.planned,
                                                     (window + 1) * self.planned)]
    pairs = np.concatenate([rows.pairs for rows, _ in dealt])
    rounds = np.concatenate([numbers for _, numbers in dealt])
    planned, varied = [], []
    for side in range(2):
      lengths, tokens = take([(corpus.source, corpus.target)[side]
                              for corpus in self._plan.corpora], pairs)
      planned.append(Sentences.end_to_end(tokens, lengths.astype(np.int32)))
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
