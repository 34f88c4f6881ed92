"""Packs sentence pairs into rows by the lengths of their two sides.

A pair's kind is the lengths of its source and its target. The search needs only the number of pairs
of each kind, 20,000 for 40 million pairs. It finds one filling of a row, and repeats it as long as
enough pairs are left. A key then chooses which pairs share a row, only for the rows needed.
"""

from typing import NamedTuple

import numpy as np

from transformer.data.batches.shuffling import mix, permute
from transformer.data.encoding import count_from_zero


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

  def __init__(
    self, source_lengths, target_lengths, source_capacity: int, target_capacity: int
  ):
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
    kind_source = source[self._firsts].astype(np.int64)
    kind_target = target[self._firsts].astype(np.int64)
    fillings = _fillings(
      kind_source,
      kind_target,
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
    slot = np.repeat(self._first_slots[filling], sizes) + count_from_zero(sizes)
    repetition = np.repeat(rows - self._first_rows[filling], sizes)
    kind = self._kinds[slot]
    kind_key = mix(pairs_key + kind.astype(np.uint64))
    # The j-th slot of a kind takes the j-th pair of that kind in the key's order.
    number = self._starts[slot] + repetition * self._steps[slot]
    number = permute(number, self._counts[kind], kind_key)
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
      largest = max(source_room / source_capacity, target_room / target_capacity)
      first = np.searchsorted(size, -largest)
      fit = left[first:] > 0
      fit &= source[first:] <= source_room
      fit &= target[first:] <= target_room
      fits = first + np.flatnonzero(fit)
      best = None
      if len(fits):
        products = source[fits] * source_room + target[fits] * target_room
        best = fits[np.argmax(products)]
    steps = np.bincount(filling, minlength=len(counts))
    times = int((counts[filling] // steps[filling]).min())
    same_before = [filling[:i].count(kind) for i, kind in enumerate(filling)]
    starts = taken[filling] + same_before
    fillings.append((order[filling], starts, steps[filling], times))
    counts = counts - times * steps
    taken = taken + times * steps
    alive = counts > 0
    order = order[alive]
    size = size[alive]
    source = source[alive]
    target = target[alive]
    counts = counts[alive]
    taken = taken[alive]
  return fillings
