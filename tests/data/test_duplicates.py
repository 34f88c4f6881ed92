"""Keys find the same repeats as a comparison of every two things."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.duplicates import keys_of_pairs, repeats

KEYS = st.lists(st.sampled_from([0, 1, 2, 5, 2**63, 2**64 - 1]), max_size=25)


def keys(numbers):
  return np.array(numbers, np.uint64)


@given(KEYS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_all_but_the_first_of_equals_are_repeats(numbers):
  wanted = [i for i, number in enumerate(numbers) if number in numbers[:i]]
  assert repeats(keys(numbers)).tolist() == wanted


def test_the_sides_of_a_pair_are_told_apart():
  one, other = keys([1, 2, 1, 2]), keys([1, 2, 2, 1])
  assert len(set(keys_of_pairs(one, other).tolist())) == 4
