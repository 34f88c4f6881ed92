"""Every pair is in one row, rows are full, and the key only shuffles."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batches.packing import Packing

SOURCE_CAPACITY, TARGET_CAPACITY = 23, 17
LENGTHS = st.lists(st.tuples(st.integers(1, SOURCE_CAPACITY), st.integers(1, TARGET_CAPACITY)),
                   max_size=60)


def like_multi30k(pairs, seed=0):
  """Returns lengths of two correlated sides: about 15 tokens on average, 50 at most."""
  rng = np.random.default_rng(seed)
  source = rng.lognormal(2.63, 0.38, pairs)
  target = source * rng.lognormal(0.02, 0.2, pairs)
  return [np.clip(side.round().astype(int), 3, 50) for side in (source, target)]


def pack_with(lengths, key, capacities=(SOURCE_CAPACITY, TARGET_CAPACITY)):
  packing = Packing(*lengths, *capacities)
  return packing.deal(np.arange(packing.num_rows), key)


def rows_of(rows):
  return [tuple(row) for row in np.split(rows.pairs, np.cumsum(rows.sizes)[:-1])]


def sums(rows, lengths):
  return np.add.reduceat(lengths[rows.pairs], np.cumsum(rows.sizes) - rows.sizes)


@given(LENGTHS, st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_every_pair_lies_in_exactly_one_row_that_holds_it(pairs, seed):
  lengths = np.array(pairs, int).reshape(-1, 2).T
  rows = pack_with(lengths, seed)
  np.testing.assert_array_equal(np.sort(rows.pairs), np.arange(len(pairs)))
  assert (rows.sizes > 0).all() and rows.sizes.sum() == len(pairs)
  if pairs:
    assert sums(rows, lengths[0]).max() <= SOURCE_CAPACITY
    assert sums(rows, lengths[1]).max() <= TARGET_CAPACITY


@given(LENGTHS, st.data())
@settings(max_examples=20, deadline=None)
def test_rows_are_the_same_whichever_are_asked_for(pairs, data):
  packing = Packing(*np.array(pairs, int).reshape(-1, 2).T, SOURCE_CAPACITY, TARGET_CAPACITY)
  whole = rows_of(packing.deal(np.arange(packing.num_rows), 3, 5))
  some = data.draw(st.lists(st.integers(0, packing.num_rows - 1)) if pairs else st.just([]))
  if some:
    assert rows_of(packing.deal(np.array(some), 3, 5)) == [whole[row] for row in some]
  assert packing.deal(np.zeros(0, int), 3, 5).sizes.tolist() == []


@given(LENGTHS)
@settings(max_examples=15, deadline=None)
def test_the_key_does_not_decide_what_lengths_share_a_row(pairs):
  lengths = np.array(pairs, int).reshape(-1, 2).T
  fillings = []
  for seed in (1, 2, 3):
    rows = rows_of(pack_with(lengths, seed)) if pairs else []
    fillings.append(sorted(sorted(pairs[i] for i in row) for row in rows))
  assert fillings[0] == fillings[1] == fillings[2]


def test_the_key_decides_who_shares_a_row():
  lengths = like_multi30k(997)
  packings = [pack_with(lengths, seed, (64, 64)) for seed in range(4)]
  members = [frozenset(map(frozenset, rows_of(packing))) for packing in packings]
  assert len(set(members)) == len(packings)
  # Few rows are the same: those with lengths of only one pair.
  again = [len(first & second) / len(first)
           for first, second in itertools.pairwise(members)]
  assert max(again) < 0.35


def test_the_key_decides_the_order_of_rows():
  lengths = like_multi30k(997)
  orders = {tuple(sums(pack_with(lengths, seed, (64, 64)), lengths[1])) for seed in range(3)}
  assert len(orders) == 3
  # The short rows, which a greedy search makes last, are at neither end of an epoch.
  packing = Packing(*lengths, 64, 64)
  for end in (0, packing.num_rows - 1):
    rows = [packing.deal(np.array([end]), seed).pairs for seed in range(13)]
    assert np.mean([sum(lengths[1][row]) for row in rows]) > 0.9 * 64


def test_target_positions_are_filled_on_lengths_like_multi30k():
  source, target = like_multi30k(5003)
  assert target.sum() / (Packing(source, target, 128, 128).num_rows * 128) >= 0.95


def test_nothing_makes_no_row():
  packing = Packing([], [], SOURCE_CAPACITY, TARGET_CAPACITY)
  assert packing.num_rows == 0
  assert [len(each) for each in packing.deal(np.arange(0), 0)] == [0, 0]


@pytest.mark.parametrize(('lengths', 'rows'), [
    ([(1, 1)], 1), ([(SOURCE_CAPACITY, TARGET_CAPACITY)], 1), ([(2, 13)], 1),
    ([(SOURCE_CAPACITY, 1)] * 13, 13), ([(1, TARGET_CAPACITY)] * 13, 13),  # Either side is full.
    ([(11, 1), (12, 2)], 1), ([(2, 7), (1, 10)], 1), ([(11, 7), (12, 10)], 1)])  # They just fit.
def test_few_pairs_take_as_few_rows_as_they_can(lengths, rows):
  assert len(pack_with(np.array(lengths).T, 0).sizes) == rows


@pytest.mark.parametrize('capacity', [(1 << 8) + 1, (1 << 16) + 1])
def test_long_pairs_are_told_apart_from_short_ones(capacity):
  lengths = np.array([[1, capacity, 1, capacity - 1], [1, 1, capacity, capacity - 1]])
  rows = rows_of(pack_with(lengths, 0, (capacity, capacity)))
  assert sorted(map(sorted, rows)) == [[0, 3], [1], [2]]


@pytest.mark.parametrize('lengths', [([3, SOURCE_CAPACITY + 1], [5, 7]),
                                     ([3, 2], [TARGET_CAPACITY + 1, 7])])
def test_a_pair_that_fits_no_row_is_refused(lengths):
  with pytest.raises(ValueError, match='23 source and 17 target positions'):
    pack_with(lengths, 0)
