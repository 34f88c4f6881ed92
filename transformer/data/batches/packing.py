"""Packs sentence pairs into rows by the lengths of their two sides.

A pair's kind is its source length and its target length. The search needs only the number of pairs
of each kind; 40 million pairs have 20,000 kinds. It finds one filling of a row, and repeats it
while enough pairs are left. A random key then chooses which pairs share a row, and only the rows
needed are computed.
"""

from typing import NamedTuple

import numpy as np

from transformer.data.batches.shuffling import mix_bits, permute


class PackedRows(NamedTuple):
  """Packed rows: `pairs`, concatenated pair indices, and `sizes`, the number of pairs per row."""

  pairs: np.ndarray
  sizes: np.ndarray


class _Filling(NamedTuple):
  """A way to fill a row, repeated for `times` rows.

  `slots` is [3, slots]: the kind of each slot, its start and its step. In row t of these rows, a
  slot takes pair `start + t · step` of its kind.
  """

  slots: np.ndarray
  times: int


class Packing:
  """A greedy packing that puts every pair into exactly one of `num_rows` rows."""

  def __init__(
    self, source_lengths, target_lengths, source_capacity: int, target_capacity: int
  ):
    """Finds fillings for pairs with these lengths in rows with these capacities, in tokens.

    There must be at least one pair, and each must fit into a row. Lengths are at least 1.
    """
    # A kind as one integer, which sorts faster than two.
    kinds = (
      np.asarray(source_lengths, np.int64) * (target_capacity + 1) + target_lengths
    )
    self._pairs = np.argsort(kinds, kind='stable').astype(np.int32)  # Ordered by kind.
    kinds, self._counts = np.unique(kinds, return_counts=True)
    self._firsts = np.cumsum(self._counts) - self._counts
    lengths = np.array(np.divmod(kinds, target_capacity + 1))
    capacities = np.array([source_capacity, target_capacity])
    self._fillings = _fillings(lengths, self._counts, capacities)
    self._first_rows = np.cumsum([0, *(filling.times for filling in self._fillings)])
    self.num_rows = int(self._first_rows[-1])

  def shuffled_rows(self, rows: np.ndarray, *key: int) -> PackedRows:
    """Returns rows by index, in the random order that `key`, non-negative integers, defines.

    The key also permutes the pairs of equal lengths. All rows of one key together hold every pair
    once.
    """
    rows_key, pairs_key = np.random.SeedSequence(key).generate_state(2, np.uint64)
    rows = permute(rows, self.num_rows, rows_key)
    places = np.searchsorted(self._first_rows, rows, side='right') - 1
    fillings = [self._fillings[place].slots for place in places]
    sizes = np.array([slots.shape[1] for slots in fillings], np.int64)
    empty = np.zeros((3, 0), np.int64)
    kind, start, step = np.concatenate([empty, *fillings], axis=1)
    index = start + np.repeat(rows - self._first_rows[places], sizes) * step
    # The j-th slot of a kind takes the j-th pair of that kind in the key's order.
    kind_key = mix_bits(pairs_key + kind.astype(np.uint64))
    index = permute(index, self._counts[kind], kind_key)
    return PackedRows(self._pairs[self._firsts[kind] + index], sizes)


def _fillings(
  lengths: np.ndarray, counts: np.ndarray, capacities: np.ndarray
) -> list[_Filling]:
  """Returns fillings that use up all pairs.

  Kinds have `lengths` [2, kinds], of source and target, and `counts` [kinds] pairs; a row has
  `capacities` [2]. The largest remaining pair opens a row. The pair with the largest dot product
  with the remaining capacity comes next (Panigrahy et al., "Heuristics for Vector Bin Packing").
  """
  negative_size = -(lengths / capacities[:, None]).max(axis=0)
  order = np.argsort(negative_size, kind='stable')  # Largest kinds first.
  remaining = counts.copy()
  fillings = []
  while len(order := order[remaining[order] > 0]):
    kinds = order[
      _fill(
        negative_size[order],
        np.take(lengths, order, axis=1),
        remaining[order],
        capacities,
      )
    ]
    steps = np.bincount(kinds, minlength=len(counts))
    times = int((remaining[kinds] // steps[kinds]).min())
    repeats = [np.count_nonzero(kinds[:i] == kind) for i, kind in enumerate(kinds)]
    starts = counts[kinds] - remaining[kinds] + repeats
    fillings.append(_Filling(np.array([kinds, starts, steps[kinds]]), times))
    remaining -= times * steps
  return fillings


def _fill(negative_size, lengths, remaining, capacities) -> list[int]:
  """Returns the kinds that fill one row; subtracts them from `remaining`, the pairs per kind."""
  capacity = capacities
  kinds = []
  fits = [0]
  while len(fits):
    best = fits[np.argmax(capacity @ np.take(lengths, fits, axis=1))]
    kinds.append(best)
    remaining[best] -= 1
    capacity = capacity - lengths[:, best]
    # Skips kinds that are too large for the remaining capacity of either side.
    first = np.searchsorted(negative_size, -(capacity / capacities).max())
    fit = (lengths[:, first:] <= capacity[:, None]).all(axis=0)
    fits = first + np.flatnonzero(fit & (remaining[first:] > 0))
  return kinds
