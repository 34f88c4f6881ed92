"""Keys find the same repeats as a comparison of every two things."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data import repeats as repeats_module
from transformer.data.repeats import first_places, groups, keys_of, keys_of_pairs, repeats

KEYS = st.lists(st.sampled_from([0, 1, 2, 5, 2**63, 2**64 - 1]), max_size=25)


def keys(numbers):
  return np.array(numbers, np.uint64)


@given(KEYS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_all_but_the_first_of_equals_are_repeats(numbers):
  wanted = [i for i, number in enumerate(numbers) if number in numbers[:i]]
  assert repeats(keys(numbers)).tolist() == wanted


@given(KEYS, st.integers(0, 4))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_groups_are_the_keys_that_several_have(numbers, most):
  found = groups(keys(numbers), most)
  sizes = {number: size for number, size in collections.Counter(numbers).items() if size > 1}
  assert (found.groups, found.members) == (len(sizes), sum(sizes.values()))
  largest = sorted(sizes, key=lambda number: (-sizes[number], numbers.index(number)))[:most]
  assert [each.tolist() for each in found.largest] == [
      [i for i, number in enumerate(numbers) if number == key] for key in largest]


@pytest.mark.parametrize('chunk', [1, 3, 1000])
@given(few=KEYS, many=KEYS)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_first_place_of_each_key_is_found(chunk, few, many):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(repeats_module, '_CHUNK', chunk)
    found = first_places(keys(few), keys(many))
  assert found.tolist() == [many.index(key) if key in many else -1 for key in few]


def test_equal_lines_have_equal_keys_and_others_have_others():
  lines = ['', ' ', 'a', 'b', 'ab', 'ba', 'a ', 'á', 'a\u0301', '\ud800', '\x00', 'a' * 999]
  assert len(set(keys_of(lines).tolist())) == len(lines)
  np.testing.assert_array_equal(keys_of(lines[::-1]), keys_of(lines)[::-1])
  assert keys_of(['a']).tolist() == [0x2f42665b399ef840]  # The same on every machine.
  assert keys_of([]).shape == (0,)


def test_the_sides_of_a_pair_are_told_apart():
  one, other = keys_of(['a', 'b', 'a', 'b']), keys_of(['a', 'b', 'b', 'a'])
  assert len(set(keys_of_pairs(one, other).tolist())) == 4
