"""The plan of batches: the batch of step n is a function of (data, seed, n)."""

import fractions
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import grain
import numpy as np

from transformer.data.batch import Batch
from transformer.data.encoding import EncodedPairs, Sentences, count_from_zero
from transformer.data.packing import Packing, Rows
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
  source, target = (sum(int(side.lengths.sum()) for side in sides) for sides in zip(
      *((pairs.source, pairs.target) for pairs in corpora), strict=True))
  source_length = max_length
  if source > target:
    source_length = 8 * math.ceil(max_length * source / max(target, 1) / 8)
  return Shape(tokens_per_batch // max_length, source_length, max_length)


class TrainingBatches:
  """All batches of a run by number, from 0: packed, shuffled anew every epoch.

  Nothing is remembered from one batch to the next, so that any batch can be had
  at any time, in any process, and a resumed run replays nothing. What is worked
  out once is which lengths share rows; which pairs do, and in which order the
  rows come, is worked out for each batch alone.

  Attributes:
    corpora: the pairs, numbered from the first of the first to the last of the last.
    shape: of every batch.
    batches_in_epoch: how many there are; an epoch's rows are dealt evenly to them.
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
      UserError: there is no pair to train on, or a weight takes nothing of its corpus.
    """
    by_weight: dict[float, list[EncodedPairs]] = {}
    for corpus, weight in zip(corpora, weights, strict=True):
      if len(corpus):
        by_weight.setdefault(weight, []).append(corpus)
    if not by_weight:
      raise UserError('the training set has no pair left to train on; '
                      'see the counts of what was dropped, and data.max_length')
    self.corpora = [corpus for group in by_weight.values() for corpus in group]
    self._cycles = [_Cycle(group, weight, shape) for weight, group in by_weight.items()]
    self.shape = shape
    self._seed = seed
    self.batches_in_epoch = -(-sum(cycle.most_rows for cycle in self._cycles) // shape.rows)

  def __getitem__(self, step: int) -> Batch:
    """The batch of step `step`."""
    return assemble(self.corpora, self.deal(step)[0], self.shape)

  def deal(self, step: int) -> tuple[Rows, np.ndarray]:
    """The packed rows of a step.

    Args:
      step: its number.

    Returns:
      Pairs, numbered as in `corpora`, by row; and for each of them how many times
      its corpus has been gone through before, int64 [pairs].
    """
    epoch, index = divmod(step, self.batches_in_epoch)
    nothing = np.zeros(0, np.int64)
    dealt, rounds, first_row, first_pair = [Rows(nothing, nothing)], [nothing], 0, 0
    for cycle in self._cycles:
      start, stop = cycle.window(epoch)
      # Every n-th row of the epoch, so that its batches differ by one row at most.
      places = np.arange(start + (index - first_row) % self.batches_in_epoch, stop,
                         self.batches_in_epoch)
      for number, rows in cycle.deal(places, self._seed):
        dealt.append(Rows(rows.pairs + first_pair, rows.sizes))
        rounds.append(np.full(len(rows.pairs), number))
      first_row += stop - start
      first_pair += cycle.num_pairs
    return Rows(*map(np.concatenate, zip(*dealt, strict=True))), np.concatenate(rounds)

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Batches `start` … `stop − 1` in order, made ahead of time."""
    return made_ahead(self.__getitem__, start, stop)


def made_ahead(batch_of: Callable[[int], Batch], start: int, stop: int) -> Iterator[Batch]:
  """Batches `start` … `stop − 1` in order, made ahead of time by a thread of Grain's."""
  steps = grain.MapDataset.range(start, stop).map(batch_of)
  options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)
  return iter(steps.to_iter_dataset(options))


class _Cycle:
  """The rows of the corpora of one weight, gone through again and again.

  Each time they come in another order and hold other pairs. An epoch goes through
  `weight` times as many rows as there are, from where the last one stopped, so that
  every pair comes equally often and where an epoch begins is known without a look
  at earlier ones.
  """

  def __init__(self, corpora: Sequence[EncodedPairs], weight: float, shape: Shape):
    self._packing = Packing(*(np.concatenate([side.lengths for side in sides]) for sides in zip(
        *((pairs.source, pairs.target) for pairs in corpora), strict=True)),
                            shape.source_length, shape.target_length)
    self.num_pairs = sum(map(len, corpora))
    rows = self._packing.num_rows
    # A fraction, because 0.3 ten times over is to be 3 and nothing else.
    self._rows_in_epoch = rows * fractions.Fraction(weight).limit_denominator(1_000_000)
    if self._rows_in_epoch < 1:
      raise UserError(f'data.train_weights must take at least one row of each corpus; {weight} of '
                      f'{rows} rows, {self.num_pairs} pairs, is none')
    self.most_rows = math.ceil(self._rows_in_epoch)

  def window(self, epoch: int) -> tuple[int, int]:
    """From which row an epoch goes to which, counted from the first epoch on."""
    return math.floor(epoch * self._rows_in_epoch), math.floor((epoch + 1) * self._rows_in_epoch)

  def deal(self, places: np.ndarray, *key: int) -> Iterator[tuple[int, Rows]]:
    """The rows at some places, counted likewise, by the round they belong to; `places` rise."""
    rounds = places // self._packing.num_rows
    for number in np.unique(rounds):
      here = places[rounds == number] - number * self._packing.num_rows
      yield int(number), self._packing.deal(here, *key, int(number))


def scoring_batches(pairs: EncodedPairs, shape: Shape) -> list[Batch]:
  """Packs a validation set, every pair once, always the same way.

  Args:
    pairs: encoded pairs, each side within the shape's lengths.
    shape: of every batch; the last one is filled up with empty rows.

  Returns:
    The batches.
  """
  rows, source_length, target_length = shape
  packing = Packing(pairs.source.lengths, pairs.target.lengths, source_length, target_length)
  return [assemble([pairs], packing.deal(np.arange(first, min(first + rows, packing.num_rows)), 0),
                   shape)
          for first in range(0, packing.num_rows, rows)]


def assemble(corpora: Sequence[EncodedPairs], rows: Rows, shape: Shape) -> Batch:
  """Writes the pairs of some packed rows into a batch.

  Args:
    corpora: all pairs, numbered from the first of the first corpus to the last of
      the last.
    rows: which pairs share a row; at most as many rows as the batch has.
    shape: the batch's; rows that are not needed stay padding.

  Returns:
    The batch.
  """
  return Batch(*_fill([pairs.source for pairs in corpora], rows, shape.rows, shape.source_length),
               *_fill([pairs.target for pairs in corpora], rows, shape.rows, shape.target_length))


def _fill(sides: Sequence[Sentences], rows: Rows, num_rows: int, length: int):
  """One side of a batch: tokens, segments and positions."""
  lengths, found = take(sides, rows.pairs)
  # Where a sentence starts in its row: what came before it there.
  before = np.cumsum(lengths) - lengths
  row_starts = np.arange(len(rows.sizes)) * length - before[np.cumsum(rows.sizes) - rows.sizes]
  position = count_from_zero(lengths)
  place = np.repeat(np.repeat(row_starts, rows.sizes) + before, lengths) + position
  tokens, segments, positions = np.zeros((3, num_rows * length), np.int32)
  tokens[place] = found
  segments[place] = np.repeat(count_from_zero(rows.sizes) + 1, lengths)
  positions[place] = position
  return [array.reshape(num_rows, length) for array in (tokens, segments, positions)]


def take(sides: Sequence[Sentences], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Lengths of sentences of several collections, numbered throughout, and their tokens in line."""
  firsts = np.cumsum([0, *map(len, sides)])
  owner = np.searchsorted(firsts, numbers, side='right') - 1
  owned = [(sides[i], owner == i, firsts[i]) for i in np.unique(owner)]
  lengths = np.zeros(len(numbers), np.int64)
  for side, mine, first in owned:
    lengths[mine] = side.lengths[numbers[mine] - first]
  tokens = np.zeros(lengths.sum(), np.int32)
  for side, mine, first in owned:
    tokens[np.repeat(mine, lengths)] = side.take(numbers[mine] - first)
  return lengths, tokens
