"""Packing sentence pairs into rows, by the lengths of their two sides alone.

Pairs of the same two lengths are interchangeable, so what is packed is a table
of counts: a row's filling is found once and repeated as long as the counts
last. The work grows with the number of different length pairs, a thousand or
two, and hardly with the corpus.
"""

from typing import NamedTuple

import numpy as np


class Packing(NamedTuple):
  """Which pairs share a row: row r holds `pairs[starts[r]:starts[r + 1]]`."""

  pairs: np.ndarray
  starts: np.ndarray

  @property
  def num_rows(self) -> int:
    """Number of rows."""
    return len(self.starts) - 1


def pack(source_lengths, target_lengths, source_capacity, target_capacity, rng) -> Packing:
  """Packs every pair into exactly one row, filling the target side as well as it can.

  A greedy search for vector bin packing: the largest pair left opens a row, and
  the pair that points most in the direction of the space left comes next (the
  dot-product rule of Panigrahy et al., "Heuristics for Vector Bin Packing").

  Args:
    source_lengths: int [pairs], each at least 1 and at most `source_capacity`.
    target_lengths: int [pairs], likewise.
    source_capacity: source positions in a row.
    target_capacity: target positions in a row.
    rng: a numpy Generator. It decides which of the pairs of equal lengths goes
      where, and the order of the rows; the number of rows does not depend on it.

  Returns:
    A `Packing` of all pairs, rows in random order.

  Raises:
    ValueError: a pair does not fit into an empty row.
  """
  source_lengths = np.asarray(source_lengths, np.int64)
  target_lengths = np.asarray(target_lengths, np.int64)
  if not len(source_lengths):
    return Packing(np.zeros(0, np.int64), np.zeros(1, np.int64))
  if source_lengths.max() > source_capacity or target_lengths.max() > target_capacity:
    raise ValueError(f'every pair must fit into a row of {source_capacity} source and '
                     f'{target_capacity} target positions; the longest sides are '
                     f'{source_lengths.max()} and {target_lengths.max()}')
  key = source_lengths * (target_capacity + 1) + target_lengths
  kinds, kind_of_pair, counts = np.unique(key, return_inverse=True, return_counts=True)
  fillings = _fillings(kinds // (target_capacity + 1), kinds % (target_capacity + 1), counts,
                       source_capacity, target_capacity)
  # Slots in row order, then pairs dealt to them: the j-th slot of a kind takes the
  # j-th pair of that kind, in an order that is drawn anew each time.
  slot_kinds = np.concatenate([np.tile(filling, times) for filling, times in fillings])
  sizes = np.concatenate([np.full(times, len(filling)) for filling, times in fillings])
  shuffled = rng.permutation(len(key))
  dealt = shuffled[np.argsort(kind_of_pair[shuffled], kind='stable')]
  pairs = np.empty(len(key), np.int64)
  pairs[np.argsort(slot_kinds, kind='stable')] = dealt
  row_order = rng.permutation(len(sizes))
  starts = np.concatenate([[0], np.cumsum(sizes)])
  shuffled_starts = np.concatenate([[0], np.cumsum(sizes[row_order])])
  offsets = np.repeat(starts[row_order] - shuffled_starts[:-1], sizes[row_order])
  return Packing(pairs[np.arange(len(pairs)) + offsets], shuffled_starts)


def _fillings(source, target, counts, source_capacity, target_capacity):
  """Row fillings, each a list of kinds and how many rows are filled so, until no count is left."""
  # Largest first, so that the first kind left opens the next row.
  order = np.argsort(-np.maximum(source / source_capacity, target / target_capacity),
                     kind='stable')
  source, target, counts = source[order], target[order], counts[order].copy()
  fillings = []
  while len(order):
    filling, left = [], counts.copy()
    source_room, target_room = source_capacity, target_capacity
    best = 0
    while best is not None:
      filling.append(best)
      left[best] -= 1
      source_room -= source[best]
      target_room -= target[best]
      fits = np.flatnonzero((left > 0) & (source <= source_room) & (target <= target_room))
      best = None
      if len(fits):
        best = fits[np.argmax(source[fits] * source_room + target[fits] * target_room)]
    used = np.bincount(filling, minlength=len(counts))
    times = int((counts[used > 0] // used[used > 0]).min())
    counts = counts - times * used
    fillings.append((order[filling], times))
    alive = counts > 0
    order, source, target, counts = order[alive], source[alive], target[alive], counts[alive]
  return fillings
