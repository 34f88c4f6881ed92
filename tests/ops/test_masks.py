"""Masks are True exactly where section 3.2.3 and packing allow attention."""

import chex
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.ops.masks import causal_mask, combine_masks, lineage_mask, segment_mask

T, S, B = 7, 11, 3


def test_no_future_position_can_be_attended():
  mask = causal_mask(T)
  chex.assert_shape(mask, (T, T))
  assert mask.dtype == bool
  for t, s in np.ndindex(T, T):
    assert mask[t, s] == (s <= t)


def rows_of(least, most, *shape):
  """Returns a strategy for integer arrays of a shape."""
  size = int(np.prod(shape))
  return st.lists(st.integers(least, most), min_size=size, max_size=size).map(
    lambda numbers: np.array(numbers, np.int32).reshape(shape)
  )


@given(rows_of(0, 3, B, T), rows_of(0, 3, B, S))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_segments_in_any_order_attend_only_to_themselves(queries, keys):
  mask = np.asarray(segment_mask(jnp.asarray(queries), jnp.asarray(keys)))
  wanted = [
    [[q == k and k != 0 for k in row] for q in queries[b]] for b, row in enumerate(keys)
  ]
  np.testing.assert_array_equal(mask, wanted)
  # A row has the same mask by itself and in a batch.
  chex.assert_trees_all_equal(np.asarray(segment_mask(queries[1], keys[1])), mask[1])


@given(rows_of(0, 2, T), st.integers(1, T))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_packed_query_sees_its_own_past_and_nothing_that_changes_with_the_future(
  row, length
):
  mask = np.asarray(combine_masks(causal_mask(T), segment_mask(row, row)))
  wanted = [[s <= t and row[s] == row[t] != 0 for s in range(T)] for t in range(T)]
  np.testing.assert_array_equal(mask, wanted)
  short = combine_masks(causal_mask(length), segment_mask(row[:length], row[:length]))
  np.testing.assert_array_equal(mask[:length, :length], short)


@given(rows_of(0, 4, 2, 5, 6), st.integers(0, 5))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_lineage_is_followed_slot_by_slot(lineage, index):
  mask = np.asarray(lineage_mask(jnp.asarray(lineage), index))
  wanted = np.zeros((2, 5, 6 * 5), bool)
  for b, w, t in np.ndindex(2, 5, index + 1):
    wanted[b, w, t * 5 + lineage[b, w, t]] = True
  np.testing.assert_array_equal(mask, wanted)


def test_combined_masks_are_true_where_each_mask_is():
  rng = np.random.default_rng(2)
  full, shared, row = (
    rng.random(shape) < 0.7 for shape in ((B, T, S), (T, S), (B, 1, S))
  )
  combined = combine_masks(jnp.asarray(shared), jnp.asarray(full), jnp.asarray(row))
  chex.assert_shape(combined, (B, T, S))
  for b, t, s in np.ndindex(B, T, S):
    assert combined[b, t, s] == (full[b, t, s] and shared[t, s] and row[b, 0, s])
