"""Packs sentence pairs into rows by the lengths of their two sides.

A pair's kind is the lengths of its source and its target. The search needs only the number of pairs
of each kind, 20,000 for 40 million pairs. It finds one filling of a row, and repeats it as long as
enough pairs are left. A key then chooses which pairs share a row, only for the rows needed.
"""

from typing import NamedTuple

import numpy as np

from transformer.data.batches.shuffling import mix, permute


class Rows(NamedTuple):
  """Packed rows: their `pairs` end to end, and the number of pairs in each row, `sizes`."""

  pairs: np.ndarray
  sizes: np.ndarray

  @property
  def starts(self) -> np.ndarray:
    """The place in `pairs` where each row begins."""
    return np.cumsum(self.sizes) - self.sizes


class Packing:
  """A greedy packing with every pair in exactly one of `num_rows` rows."""

  def __init__(self, source_lengths, target_lengths, source_capacity: int, target_capacity: int):
    """Finds the fillings for pairs of such lengths in rows of such capacities.

    There is at least one pair, and each fits into a row. Lengths are at least 1.
    """
    # Sorting 16-bit numbers is several times faster than sorting longer ones.
    kind = np.uint16 if max(source_capacity, target_capacity) < 1 << 16 else np.int32
    source = np.asarray(source_lengths, kind)
    target = np.asarray(target_lengths, kind)
    self._pairs = np.lexsort((target, source)).astype(np.int32)  # Ordered by kind.
    source = source[self._pairs]
    target = target[self._pairs]
    new = np.ones(len(source), bool)
    new[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    self._firsts = np.flatnonzero(new)
    self._counts = np.diff(self._firsts, append=len(source))
    fillings = _fillings(
      source[self._firsts].astype(np.int64),
      target[self._firsts].astype(np.int64),
      self._counts,
      source_capacity,
      target_capacity,
    )
    self._first_rows = np.cumsum([0, *(times for *_, times in fillings)])
    self._sizes = np.array([len(kinds) for kinds, *_ in fillings], np.int64)
    self._first_slots = np.cumsum(self._sizes) - self._sizes
    slots = np.concatenate([slots for *slots, _ in fillings], axis=1)
    self._kinds, self._starts, self._steps = slots
    self.num_rows = int(self._first_rows[-1])

  def deal(self, rows: np.ndarray, *key: int) -> Rows:
    """Returns the pairs of some rows, given by their places in the key's order of rows.

    Each key, of non-negative numbers, also puts other pairs of the same lengths into the rows. All
    rows of one key together hold every pair once.
    """
    rows_key, pairs_key = np.random.SeedSequence(key).generate_state(2, np.uint64)
    rows = permute(np.asarray(rows, np.int64), self.num_rows, rows_key)
    filling = np.searchsorted(self._first_rows, rows, side='right') - 1
    sizes = self._sizes[filling]
    slot = np.arange(sizes.sum()) + np.repeat(
      self._first_slots[filling] - (np.cumsum(sizes) - sizes), sizes
    )
    repetition = np.repeat(rows - self._first_rows[filling], sizes)
    kind = self._kinds[slot]
    # The j-th slot of a kind takes the j-th pair of that kind in the key's order.
    number = permute(
      self._starts[slot] + repetition * self._steps[slot],
      self._counts[kind],
      mix(pairs_key + kind.astype(np.uint64)),
    )
    return Rows(self._pairs[self._firsts[kind] + number], sizes)


def _fillings(source, target, counts, source_capacity, target_capacity):
  """Returns ways to fill rows, until no pair is left, each with its number of rows.

  The largest remaining pair opens a row. The pair with the largest dot product with the
  remaining space comes next (Panigrahy et al., "Heuristics for Vector Bin Packing").

  A way is (kinds, starts, steps, times): in the t-th of its rows, slot i takes pair
  `starts[i] + t · steps[i]` of `kinds[i]`.
  """
  # The largest kind first.
  size = -np.maximum(source / source_capacity, target / target_capacity)
  order = np.argsort(size, kind='stable')
  size = size[order]
  source = source[order]
  target = target[order]
  counts = counts[order]
  taken = np.zeros_like(counts)
  fillings = []
  while len(order):
    filling = []
    left = counts.copy()
    source_room = source_capacity
    target_room = target_capacity
    best = 0
    while best is not None:
      filling.append(best)
      left[best] -= 1
      source_room -= source[best]
      target_room -= target[best]
      # Skips the kinds that are larger than the room on both sides.
      first = np.searchsorted(
        size, -max(source_room / source_capacity, target_room / target_capacity)
      )
      fits = first + np.flatnonzero(
        (left[first:] > 0) & (source[first:] <= source_room) & (target[first:] <= target_room)
      )
      best = None
      if len(fits):
        best = fits[np.argmax(source[fits] * source_room + target[fits] * target_room)]
    used = np.bincount(filling, minlength=len(counts))
    times = int((counts[used > 0] // used[used > 0]).min())
    same_before = [filling[:i].count(kind) for i, kind in enumerate(filling)]
    fillings.append((order[filling], taken[filling] + same_before, used[filling], times))
    counts = counts - times * used
    taken = taken + times * used
    alive = counts > 0
    order, size, source, target, counts, taken = (
      column[alive] for column in (order, size, source, target, counts, taken)
    )
  return fillings
