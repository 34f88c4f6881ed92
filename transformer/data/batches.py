"""The plan of batches: the batch of step n is a function of (data, seed, n)."""

import bisect
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import grain
import numpy as np

from transformer.data.batch import Batch
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.data.packing import Packing, pack
from transformer.errors import UserError


class Shape(NamedTuple):
  """The shape that all batches of a run have."""

  rows: int
  source_length: int
  target_length: int


def batch_shape(tokens_per_batch: int, max_length: int,
                corpora: Sequence[EncodedPairs]) -> Shape:
  """Chooses the shape of a run's batches.

  Args:
    tokens_per_batch: target positions in a batch.
    max_length: target positions in a row; it divides `tokens_per_batch`.
    corpora: the training pairs. If their sources have more tokens than their
      targets, the source side of a row is longer in proportion, so that it is
      not what keeps the target side from being filled.

  Returns:
    Rows, source positions and target positions.
  """
  source, target = (sum(len(side.tokens) for side in sides) for sides in zip(
      *((pairs.source, pairs.target) for pairs in corpora), strict=True))
  source_length = max_length
  if source > target:
    source_length = 8 * math.ceil(max_length * source / max(target, 1) / 8)
  return Shape(tokens_per_batch // max_length, source_length, max_length)


class TrainingBatches:
  """All batches of a run by number, from 0: packed, shuffled anew every epoch.

  Nothing is remembered from one batch to the next, so that any batch can be had
  at any time, in any process, and a resumed run replays nothing. An epoch's rows
  are dealt evenly to its batches; no pair is left out of an epoch.
  """

  def __init__(self, corpora: Sequence[EncodedPairs], weights: Sequence[float], shape: Shape,
               seed: int):
    """Plans batches over one or more corpora.

    Args:
      corpora: encoded training corpora.
      weights: how many times an epoch uses each corpus, one number each.
      shape: of every batch.
      seed: the run's root seed.

    Raises:
      UserError: there is no pair to train on, or a weight takes none of its corpus.
    """
    self._source = Sentences.concatenate([corpus.source for corpus in corpora])
    self._target = Sentences.concatenate([corpus.target for corpus in corpora])
    if not len(self._source):
      raise UserError('the training set has no pair left to train on; '
                      'see the counts of what was dropped, and data.max_length')
    self._sizes = [len(corpus) for corpus in corpora]
    for size, weight in zip(self._sizes, weights, strict=True):
      if size and not round(weight * size):
        raise UserError(f'data.train_weights must take at least one pair of each corpus; '
                        f'{weight} of {size} pairs is none')
    self._weights = list(weights)
    self._shape = shape
    self._seed = seed
    self._same_every_epoch = all(float(weight).is_integer() for weight in weights)
    self._first_batches = [0]
    self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

  def __getitem__(self, step: int) -> Batch:
    """The batch of step `step`."""
    epoch, index = self._locate(step)
    plan = self._plan(epoch)
    return assemble(self._source, self._target, plan, self._rows_of(plan, index), self._shape)

  def batches_in_epoch(self, epoch: int = 0) -> int:
    """How many batches an epoch has."""
    return -(-self._plan(0 if self._same_every_epoch else epoch).num_rows // self._shape.rows)

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Batches `start` … `stop − 1` in order, made ahead of time by Grain's threads."""
    steps = grain.MapDataset.range(start, stop).map(self.__getitem__)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)
    return iter(steps.to_iter_dataset(options))

  def _rows_of(self, plan: Packing, index: int) -> np.ndarray:
    """Rows dealt to a batch: every n-th, so that batches of an epoch differ by one row at most."""
    batches = -(-plan.num_rows // self._shape.rows)
    return np.arange(index, plan.num_rows, batches)

  def _locate(self, step):
    """The epoch of a step, and the step's place in it."""
    if self._same_every_epoch:
      return divmod(step, self.batches_in_epoch())
    while self._first_batches[-1] <= step:
      epoch = len(self._first_batches) - 1
      self._first_batches.append(self._first_batches[-1] + self.batches_in_epoch(epoch))
    epoch = bisect.bisect_right(self._first_batches, step) - 1
    return epoch, step - self._first_batches[epoch]

  def _make_plan(self, epoch) -> Packing:
    """Chooses the pairs of an epoch and packs them."""
    pairs = []
    first = 0
    for number, (size, weight) in enumerate(zip(self._sizes, self._weights, strict=True)):
      whole = int(weight)
      pairs.append(first + np.tile(np.arange(size), whole))
      part = round((weight - whole) * size)
      if part:
        # Windows of one fixed shuffle, one after the other and round again, so that
        # every pair of the corpus comes equally often.
        order = np.random.default_rng([self._seed, 1, number]).permutation(size)
        pairs.append(first + order[(epoch * part + np.arange(part)) % size])
      first += size
    pairs = np.concatenate(pairs)
    rng = np.random.default_rng([self._seed, 0, epoch])
    plan = pack(self._source.lengths[pairs], self._target.lengths[pairs],
                self._shape.source_length, self._shape.target_length, rng)
    return Packing(pairs[plan.pairs], plan.starts)


def scoring_batches(pairs: EncodedPairs, shape: Shape) -> list[Batch]:
  """Packs a validation set, every pair once, always the same way.

  Args:
    pairs: encoded pairs, each side within the shape's lengths.
    shape: of every batch; the last one is filled up with empty rows.

  Returns:
    The batches.
  """
  rows, source_length, target_length = shape
  plan = pack(pairs.source.lengths, pairs.target.lengths, source_length, target_length,
              np.random.default_rng(0))
  return [assemble(pairs.source, pairs.target, plan,
                   np.arange(first, min(first + rows, plan.num_rows)), shape)
          for first in range(0, plan.num_rows, rows)]


def assemble(source: Sentences, target: Sentences, plan: Packing, rows: np.ndarray,
             shape: Shape) -> Batch:
  """Writes the pairs of some planned rows into a batch.

  Args:
    source: all source sentences.
    target: all target sentences.
    plan: which pairs share a row.
    rows: the planned rows to write, at most as many as the batch has.
    shape: the batch's; rows that are not needed stay padding.

  Returns:
    The batch.
  """
  num_rows, source_length, target_length = shape
  sizes = plan.starts[rows + 1] - plan.starts[rows]
  before = np.cumsum(sizes) - sizes
  segment = np.arange(sizes.sum()) - np.repeat(before, sizes)
  pairs = plan.pairs[np.repeat(plan.starts[rows], sizes) + segment]
  row = np.repeat(np.arange(len(rows)), sizes)
  return Batch(*_fill(source, pairs, row, segment, num_rows, source_length),
               *_fill(target, pairs, row, segment, num_rows, target_length))


def _fill(sentences, pairs, row, segment, num_rows, length):
  """One side of a batch: tokens, segments and positions."""
  lengths = sentences.starts[pairs + 1] - sentences.starts[pairs]
  total = lengths.sum()
  sentence_start = np.cumsum(lengths) - lengths
  position = np.arange(total) - np.repeat(sentence_start, lengths)
  # Where a sentence starts in its row: what came before it there.
  first_of_row = np.repeat(sentence_start[segment == 0], np.bincount(row)[np.unique(row)])
  place = np.repeat(row * length + sentence_start - first_of_row, lengths) + position
  tokens, segments, positions = np.zeros((3, num_rows * length), np.int32)
  tokens[place] = sentences.tokens[np.repeat(sentences.starts[pairs], lengths) + position]
  segments[place] = np.repeat(segment + 1, lengths)
  positions[place] = position
  return [array.reshape(num_rows, length) for array in (tokens, segments, positions)]
