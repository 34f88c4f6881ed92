"""Every pair lies in one row, rows are full, and the generator decides only who sits where."""

import itertools

import chex
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.packing import pack

SOURCE_CAPACITY, TARGET_CAPACITY = 23, 17
LENGTHS = st.lists(st.tuples(st.integers(1, SOURCE_CAPACITY), st.integers(1, TARGET_CAPACITY)),
                   max_size=60)


def like_multi30k(pairs, seed=0):
  """Lengths of two correlated sides: about 15 tokens on average, 50 at most."""
  rng = np.random.default_rng(seed)
  source = rng.lognormal(2.63, 0.38, pairs)
  target = source * rng.lognormal(0.02, 0.2, pairs)
  return [np.clip(side.round().astype(int), 3, 50) for side in (source, target)]


def pack_with(lengths, seed, capacities=(SOURCE_CAPACITY, TARGET_CAPACITY)):
  return pack(*lengths, *capacities, np.random.default_rng(seed))


def rows_of(packing):
  return [tuple(row) for row in np.split(packing.pairs, packing.starts[1:-1])]


def sums(packing, lengths):
  return np.add.reduceat(lengths[packing.pairs], packing.starts[:-1])


@given(LENGTHS, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_pair_lies_in_exactly_one_row_that_holds_it(pairs, seed):
  lengths = np.array(pairs, int).reshape(-1, 2).T
  packing = pack_with(lengths, seed)
  np.testing.assert_array_equal(np.sort(packing.pairs), np.arange(len(pairs)))
  assert packing.starts[0] == 0 and packing.starts[-1] == len(pairs)
  assert (np.diff(packing.starts) > 0).all() and packing.num_rows == len(packing.starts) - 1
  if pairs:
    assert sums(packing, lengths[0]).max() <= SOURCE_CAPACITY
    assert sums(packing, lengths[1]).max() <= TARGET_CAPACITY


@given(LENGTHS)
@settings(max_examples=30, deadline=None)
def test_the_generator_does_not_decide_what_lengths_share_a_row(pairs):
  lengths = np.array(pairs, int).reshape(-1, 2).T
  fillings = []
  for seed in (1, 2, 3):
    rows = rows_of(pack_with(lengths, seed)) if pairs else []
    fillings.append(sorted(sorted(pairs[i] for i in row) for row in rows))
  assert fillings[0] == fillings[1] == fillings[2]


def test_the_same_generator_gives_the_same_packing():
  lengths = like_multi30k(997)
  once, again = (pack_with(lengths, 5, (64, 64)) for _ in range(2))
  chex.assert_trees_all_equal(once, again)


def test_the_generator_decides_who_shares_a_row():
  lengths = like_multi30k(997)
  packings = [pack_with(lengths, seed, (64, 64)) for seed in range(7)]
  members = [frozenset(map(frozenset, rows_of(packing))) for packing in packings]
  assert len(set(members)) == len(packings)
  # Few rows come again: those of lengths that only one pair has.
  again = [len(first & second) / len(first)
           for first, second in itertools.pairwise(members)]
  assert max(again) < 0.35


def test_the_generator_decides_the_order_of_rows():
  lengths = like_multi30k(997)
  orders = {tuple(sums(pack_with(lengths, seed, (64, 64)), lengths[1])) for seed in range(5)}
  assert len(orders) == 5
  # Neither end of an epoch is where the short rows go, which a greedy search makes last.
  first = [rows_of(pack_with(lengths, seed, (64, 64)))[0] for seed in range(29)]
  last = [rows_of(pack_with(lengths, seed, (64, 64)))[-1] for seed in range(29)]
  for ends in (first, last):
    sizes = [sum(lengths[1][list(row)]) for row in ends]
    assert np.mean(sizes) > 0.9 * 64


@pytest.mark.parametrize('pairs', [5003, 20011])
def test_target_positions_are_filled_on_lengths_like_multi30k(pairs):
  source, target = like_multi30k(pairs)
  assert 14 < source.mean() < 16 and 45 <= source.max() <= 50
  assert np.corrcoef(source, target)[0, 1] > 0.8
  packing = pack_with((source, target), 0, (128, 128))
  assert target.sum() / (packing.num_rows * 128) >= 0.95


def test_a_wider_source_side_keeps_targets_filled_when_sources_are_longer():
  source, target = like_multi30k(5003)
  source = np.minimum(2 * source, 100)
  packing = pack_with((source, target), 0, (256, 128))
  assert target.sum() / (packing.num_rows * 128) >= 0.95


def test_nothing_makes_no_row():
  packing = pack([], [], SOURCE_CAPACITY, TARGET_CAPACITY, np.random.default_rng(0))
  assert packing.num_rows == 0 and len(packing.pairs) == 0
  np.testing.assert_array_equal(packing.starts, [0])


@pytest.mark.parametrize('lengths', [(1, 1), (SOURCE_CAPACITY, TARGET_CAPACITY), (2, 13)])
def test_one_pair_makes_one_row(lengths):
  packing = pack_with([[length] for length in lengths], 0)
  assert rows_of(packing) == [(0,)]


@pytest.mark.parametrize('full', [(SOURCE_CAPACITY, 1), (1, TARGET_CAPACITY),
                                  (SOURCE_CAPACITY, TARGET_CAPACITY)])
def test_a_pair_that_fills_either_side_has_a_row_to_itself(full):
  packing = pack_with([[length] * 13 for length in full], 0)
  assert packing.num_rows == 13
  assert sorted(rows_of(packing)) == [(i,) for i in range(13)]


@pytest.mark.parametrize('lengths', [([11, 12], [1, 2]), ([2, 1], [7, 10]), ([11, 12], [7, 10])])
def test_pairs_that_fit_exactly_share_a_row(lengths):
  assert pack_with(lengths, 0).num_rows == 1


@pytest.mark.parametrize(('lengths', 'longest'), [
    (([3, SOURCE_CAPACITY + 1], [5, 7]), '24 and 7'),
    (([3, 2], [TARGET_CAPACITY + 2, 7]), '3 and 19'),
])
def test_a_pair_that_fits_no_row_is_refused(lengths, longest):
  with pytest.raises(ValueError, match=f'23 source and 17 target positions; .* {longest}'):
    pack_with(lengths, 0)
