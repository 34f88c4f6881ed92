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


class VariedBatches(BatchesByStep):
  """The batches of a run by step, like `TrainingBatches`, of varied sentences.

  An epoch uses every pair as often as the plan. It takes more real batches, since varied sentences
  have more pieces.

  Attributes:
    planned: planned batches in a window; an epoch of a small corpus is one window.
    real: real batches in a window.
  """

  def __init__(self, plan: TrainingBatches, variations: Sequence[Vary], seed: int):
    """Varies the first window, to find the number of real batches of a plan."""
    self.shape = plan.shape
    self._plan, self._variations, self._seed = plan, variations, seed
    windows_in_epoch = max(round(sum(map(len, plan.corpora)) / _WINDOW_PAIRS), 1)
    self.planned = min(max(-(-plan.batches_in_epoch // windows_in_epoch), _FEWEST_BATCHES),
                       plan.batches_in_epoch)
    planned, varied, _ = self._vary(0)
    _, packing = self._packed(planned, varied, len(planned[0]))
    self.real = max(math.ceil(packing.num_rows * (1 + _SPARE) / self.shape.rows), self.planned)
    self._lock = threading.Lock()
    self._window = functools.lru_cache(maxsize=2)(self._make_window)

  def __getitem__(self, step: int) -> Batch:
    """Returns the batch of a step."""
    number, index = divmod(step, self.real)
    with self._lock:
      pairs, packing = self._window(number)
    if isinstance(packing, Packing):
      places = np.arange(index, packing.num_rows, self.real)
      rows = packing.deal(places, self._seed, number)
    else:
      places = np.arange(index, len(packing.sizes), self.real)
      sizes = packing.sizes[places]
      rows = Rows(np.repeat(packing.starts[places], sizes) + count_from_zero(sizes), sizes)
    return assemble([pairs], rows, self.shape)

  def _make_window(self, number: int) -> tuple[EncodedPairs, Packing | Rows]:
    """Returns the pairs of a window, varied, and how they fill at most its number of rows.

    Very rarely, there are too many rows. Then some pairs stay as planned, until the rows fit. If
    even the planned pairs, packed again, need more rows than the plan, they keep its rows.
    """
    planned, varied, sizes = self._vary(number)
    for sixteenths in range(16, 0, -1):
      pairs, packing = self._packed(planned, varied, len(planned[0]) * sixteenths // 16)
      if packing.num_rows <= self.real * self.shape.rows:
        return pairs, packing
    return EncodedPairs(*planned, {}), Rows(np.arange(len(planned[0])), sizes)

  def _packed(self, planned, varied, number: int) -> tuple[EncodedPairs, Packing]:
    """Packs the pairs, the first `number` varied and the others as planned."""
    source, target = (_choose(np.arange(len(one)) < number, one, other)
                      for one, other in zip(varied, planned, strict=True))
    return EncodedPairs(source, target, {}), Packing(source.lengths, target.lengths,
                                                     *self.shape[1:])

  def _vary(self, window: int) -> tuple[list[Sentences], list[Sentences], np.ndarray]:
    """Returns both sides of a window's pairs, as planned and varied, and the sizes of its rows."""
    dealt = [self._plan.deal(step) for step in range(window * self.planned,
                                                     (window + 1) * self.planned)]
    pairs = np.concatenate([rows.pairs for rows, _ in dealt])
    rounds = np.concatenate([numbers for _, numbers in dealt])
    corpora = self._plan.corpora
    planned = [take([corpus.source for corpus in corpora], pairs),
               take([corpus.target for corpus in corpora], pairs)]
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
