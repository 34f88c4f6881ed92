"""Every pair is in one row, rows are full, and the key only shuffles, by fair permutations."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batches.packing import Packing
from transformer.data.batches.shuffling import permute

SOURCE_CAPACITY, TARGET_CAPACITY = 23, 17
LENGTHS = st.lists(
  st.tuples(st.integers(1, SOURCE_CAPACITY), st.integers(1, TARGET_CAPACITY)),
  min_size=1,
  max_size=60,
)


def like_multi30k(pairs, seed=0):
  """Returns lengths of two correlated sides: about 15 tokens on average, 50 at most."""
  rng = np.random.default_rng(seed)
  source = rng.lognormal(2.63, 0.38, pairs)
  target = source * rng.lognormal(0.02, 0.2, pairs)
  return [np.clip(side.round().astype(int), 3, 50) for side in (source, target)]


def pack_with(lengths, key, capacities=(SOURCE_CAPACITY, TARGET_CAPACITY)):
  packing = Packing(*lengths, *capacities)
  return packing.shuffled_rows(np.arange(packing.num_rows), key)


def rows_of(rows):
  return [tuple(row) for row in np.split(rows.pairs, np.cumsum(rows.sizes)[:-1])]


def sums(rows, lengths):
  return np.add.reduceat(lengths[rows.pairs], np.cumsum(rows.sizes) - rows.sizes)


@given(LENGTHS, st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_every_pair_is_in_exactly_one_row_with_capacity_for_it(pairs, seed):
  lengths = np.array(pairs, int).reshape(-1, 2).T
  rows = pack_with(lengths, seed)
  np.testing.assert_array_equal(np.sort(rows.pairs), np.arange(len(pairs)))
  assert (rows.sizes > 0).all() and rows.sizes.sum() == len(pairs)
  assert sums(rows, lengths[0]).max() <= SOURCE_CAPACITY
  assert sums(rows, lengths[1]).max() <= TARGET_CAPACITY


@given(LENGTHS, st.data())
@settings(max_examples=20, deadline=None)
def test_rows_are_the_same_whichever_are_asked_for(pairs, data):
  packing = Packing(
    *np.array(pairs, int).reshape(-1, 2).T, SOURCE_CAPACITY, TARGET_CAPACITY
  )
  whole = rows_of(packing.shuffled_rows(np.arange(packing.num_rows), 3, 5))
  some = data.draw(st.lists(st.integers(0, packing.num_rows - 1)))
  if some:
    assert rows_of(packing.shuffled_rows(np.array(some), 3, 5)) == [
      whole[row] for row in some
    ]
  assert packing.shuffled_rows(np.zeros(0, int), 3, 5).sizes.tolist() == []


def test_the_key_decides_who_shares_a_row():
  lengths = like_multi30k(997)
  packings = [pack_with(lengths, seed, (64, 64)) for seed in range(4)]
  members = [frozenset(map(frozenset, rows_of(packing))) for packing in packings]
  assert len(set(members)) == len(packings)
  # Few rows are the same: those with lengths of only one pair.
  again = [
    len(first & second) / len(first) for first, second in itertools.pairwise(members)
  ]
  assert max(again) < 0.35


def test_the_key_decides_the_order_of_rows():
  lengths = like_multi30k(997)
  orders = {
    tuple(sums(pack_with(lengths, seed, (64, 64)), lengths[1])) for seed in range(3)
  }
  assert len(orders) == 3
  # The short rows, which a greedy search makes last, are at neither end of an epoch.
  packing = Packing(*lengths, 64, 64)
  for end in (0, packing.num_rows - 1):
    rows = [packing.shuffled_rows(np.array([end]), seed).pairs for seed in range(13)]
    assert np.mean([sum(lengths[1][row]) for row in rows]) > 0.9 * 64


def test_target_positions_are_filled_on_lengths_like_multi30k():
  source, target = like_multi30k(5003)
  assert target.sum() / (Packing(source, target, 128, 128).num_rows * 128) >= 0.95


@pytest.mark.parametrize(
  ('lengths', 'rows'),
  [
    ([(1, 1)], 1),
    ([(SOURCE_CAPACITY, TARGET_CAPACITY)], 1),
    ([(2, 13)], 1),
    ([(SOURCE_CAPACITY, 1)] * 13, 13),
    ([(1, TARGET_CAPACITY)] * 13, 13),  # Either side is full.
    ([(11, 1), (12, 2)], 1),
    ([(2, 7), (1, 10)], 1),
    ([(11, 7), (12, 10)], 1),
  ],
)  # They just fit.
def test_few_pairs_take_as_few_rows_as_they_can(lengths, rows):
  assert len(pack_with(np.array(lengths).T, 0).sizes) == rows


@pytest.mark.parametrize('capacity', [(1 << 8) + 1, (1 << 16) + 1])
def test_long_and_short_pairs_are_distinguished(capacity):
  lengths = np.array([[1, capacity, 1, capacity - 1], [1, 1, capacity, capacity - 1]])
  rows = rows_of(pack_with(lengths, 0, (capacity, capacity)))
  assert sorted(map(sorted, rows)) == [[0, 3], [1], [2]]


KEYS = np.random.SeedSequence(5).generate_state(6000, np.uint64)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
@settings(max_examples=25, deadline=None)
def test_every_place_is_taken_once(size, key):
  np.testing.assert_array_equal(
    np.sort(permute(np.arange(size), size, key)), np.arange(size)
  )


@given(
  st.lists(
    st.tuples(st.integers(1, 50_000_000), st.integers(0, 2**64 - 1)), max_size=20
  )
)
@settings(max_examples=20, deadline=None)
def test_vectorized_permutations_match_single_permutations(permutations):
  sizes = np.array([size for size, _ in permutations], np.int64)
  keys = np.array([key for _, key in permutations], np.uint64)
  indices = np.array([key % size for size, key in permutations], np.int64)
  together = permute(indices, sizes, keys)
  assert ((together >= 0) & (together < sizes)).all()
  assert together.tolist() == [
    permute(np.array([index]), size, key)[0]
    for index, size, key in zip(indices, sizes, keys, strict=True)
  ]


@pytest.mark.long
@pytest.mark.parametrize('size', [2, 3, 4])
def test_every_order_is_as_likely_as_every_other(size):
  orders = collections.Counter(
    tuple(permute(np.arange(size), size, key).tolist()) for key in KEYS
  )
  assert set(orders) == set(itertools.permutations(range(size)))
  expected = len(KEYS) / len(orders)
  # Four standard deviations.
  assert max(abs(number - expected) for number in orders.values()) < 4 * expected**0.5


def test_neighbors_part_and_keys_that_differ_in_a_bit_share_nothing():
  size = 1_000_003
  one, other = (permute(np.arange(20_000), size, key) for key in (8, 9))
  for steps in (np.diff(one), one - other):
    # The distance of two random places is a third of the size on average.
    assert abs(np.mean(steps > 0) - 0.5) < 0.02
    assert abs(np.mean(np.abs(steps)) / size - 1 / 3) < 0.01
  assert (one == other).sum() < 5
