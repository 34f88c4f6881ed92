"""Keys find the same lines as a comparison of every two lines."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.tools.audit.keys import first_places, keys_of

KEYS = st.lists(st.sampled_from([0, 1, 2, 5, 2**63, 2**64 - 1]), max_size=25)


@given(few=KEYS, many=KEYS)
@settings(max_examples=100)
def test_the_first_place_of_each_key_is_found(few, many):
  places = first_places(np.array(few, np.uint64), np.array(many, np.uint64))
  assert places.tolist() == [many.index(key) if key in many else -1 for key in few]


def test_equal_lines_have_equal_keys_and_others_have_others():
  lines = ['', ' ', 'a', 'b', 'ab', 'ba', 'a ', 'á', 'a\u0301', '\ud800', '\x00', 'a' * 999]
  assert len(set(keys_of(lines).tolist())) == len(lines)
  np.testing.assert_array_equal(keys_of(lines[::-1]), keys_of(lines)[::-1])
  assert keys_of(['a']).tolist() == [0x2f42665b399ef840]  # The same on every machine.
  assert keys_of([]).shape == (0,)
