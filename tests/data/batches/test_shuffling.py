"""A permutation without a table is a permutation, and a fair one."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batches.shuffling import permute

KEYS = np.random.SeedSequence(5).generate_state(6000, np.uint64)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
@settings(max_examples=25, deadline=None)
def test_every_place_is_taken_once(size, key):
  np.testing.assert_array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@given(st.lists(st.tuples(st.integers(1, 50_000_000), st.integers(0, 2**64 - 1)), max_size=20))
@settings(max_examples=20, deadline=None)
def test_elements_of_many_permutations_at_once_are_those_of_each_alone(each):
  sizes = np.array([size for size, _ in each], np.int64)
  keys = np.array([key for _, key in each], np.uint64)
  indices = np.array([key % size for size, key in each], np.int64)
  together = permute(indices, sizes, keys)
  assert ((together >= 0) & (together < sizes)).all()
  assert together.tolist() == [permute(np.array([index]), size, key)[0]
                               for index, size, key in zip(indices, sizes, keys, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize('size', [2, 3, 4])
def test_every_order_is_as_likely_as_every_other(size):
  found = collections.Counter(tuple(permute(np.arange(size), size, key).tolist()) for key in KEYS)
  assert set(found) == set(itertools.permutations(range(size)))
  expected = len(KEYS) / len(found)
  # Four standard deviations.
  assert max(abs(number - expected) for number in found.values()) < 4 * expected**0.5


def test_neighbours_part_and_keys_that_differ_in_a_bit_share_nothing():
  size = 1_000_003
  one, other = (permute(np.arange(20_000), size, key) for key in (8, 9))
  for steps in (np.diff(one), one - other):
    # The distance of two random places is a third of the size on average.
    assert abs(np.mean(steps > 0) - 0.5) < 0.02
    assert abs(np.mean(np.abs(steps)) / size - 1 / 3) < 0.01
  assert (one == other).sum() < 5
