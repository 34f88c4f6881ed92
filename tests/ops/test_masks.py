"""Masks are True exactly where section 3.2.3 and packing allow attention."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.ops.masks import causal_mask, combine_masks, lineage_mask, segment_mask

T, S, B = 7, 11, 3


def segments(length, seed):
  """Returns rows of segments, numbered from 1, with padding at the end."""
  rng = np.random.default_rng(seed)
  rows = np.sort(rng.integers(1, 4, (B, length)), axis=-1)
  rows[:, -2:] = 0
  return jnp.asarray(rows, jnp.int32)


def test_no_future_position_can_be_attended():
  mask = causal_mask(T)
  chex.assert_shape(mask, (T, T))
  assert mask.dtype == bool
  for t, s in np.ndindex(T, T):
    assert mask[t, s] == (s <= t)


def test_attention_stays_inside_a_segment_and_off_padding():
  queries, keys = segments(T, 0), segments(S, 1)
  mask = segment_mask(queries, keys)
  chex.assert_shape(mask, (B, T, S))
  assert mask.dtype == bool
  for b, t, s in np.ndindex(B, T, S):
    assert mask[b, t, s] == (queries[b, t] == keys[b, s] and keys[b, s] != 0)
  assert np.any(mask)


def rows_of(least, most, *shape):
  """Returns a strategy for integer arrays of a shape."""
  size = int(np.prod(shape))
  return st.lists(st.integers(least, most), min_size=size, max_size=size).map(
      lambda numbers: np.array(numbers, np.int32).reshape(shape))


@given(rows_of(0, 3, B, T), rows_of(0, 3, B, S))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_segments_in_any_order_attend_to_themselves_alone(queries, keys):
  mask = np.asarray(segment_mask(jnp.asarray(queries), jnp.asarray(keys)))
  wanted = [[[q == k and k != 0 for k in row] for q in queries[b]] for b, row in enumerate(keys)]
  np.testing.assert_array_equal(mask, wanted)
  # A row has the same mask alone and in a batch.
  chex.assert_trees_all_equal(np.asarray(segment_mask(queries[1], keys[1])), mask[1])


@given(rows_of(0, 2, T), st.integers(1, T))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_packed_query_sees_its_own_past_and_nothing_that_changes_with_the_future(row, length):
  mask = np.asarray(combine_masks(causal_mask(T), segment_mask(row, row)))
  wanted = [[s <= t and row[s] == row[t] != 0 for s in range(T)] for t in range(T)]
  np.testing.assert_array_equal(mask, wanted)
  short = combine_masks(causal_mask(length), segment_mask(row[:length], row[:length]))
  np.testing.assert_array_equal(mask[:length, :length], short)


@given(rows_of(0, 4, 2, 5, 6), st.integers(0, 5))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_lineage_is_followed_slot_by_slot(lineage, index):
  mask = np.asarray(lineage_mask(jnp.asarray(lineage), index))
  wanted = np.zeros((2, 5, 6 * 5), bool)
  for b, w, t in np.ndindex(2, 5, index + 1):
    wanted[b, w, t * 5 + lineage[b, w, t]] = True
  np.testing.assert_array_equal(mask, wanted)


def test_padding_neither_attends_nor_is_attended():
  queries, keys = segments(T, 0), segments(S, 1)
  mask = segment_mask(queries, keys)
  assert not np.any(mask[:, :, -2:])
  assert not np.any(mask[:, -2:, :])


def test_eager_jit_vmap_and_pmap_agree_on_segments():
  given = segments(T, 0), segments(S, 1)
  eager = segment_mask(*given)
  for lifted in (jax.jit(segment_mask), jax.vmap(segment_mask), jax.pmap(segment_mask)):
    chex.assert_trees_all_equal(lifted(*given), eager)
  stacked = [jnp.stack([x, x[::-1]]) for x in given]
  chex.assert_trees_all_equal(segment_mask(*stacked), jnp.stack([eager, eager[::-1]]))


def test_a_hypothesis_sees_one_slot_of_every_position_of_its_past():
  beams = 5
  lineage = np.random.default_rng(3).integers(0, beams, (B, beams, T))
  traced = jax.jit(lineage_mask)
  for index in range(T):
    mask = lineage_mask(jnp.asarray(lineage), index)
    chex.assert_shape(mask, (B, beams, T * beams))
    chex.assert_trees_all_equal(traced(jnp.asarray(lineage), jnp.int32(index)), mask)
    wanted = (lineage[..., None] == np.arange(beams)) & (np.arange(T) <= index)[:, None]
    np.testing.assert_array_equal(np.reshape(mask, (B, beams, T, beams)), wanted)


def test_combined_masks_are_true_where_each_mask_is():
  rng = np.random.default_rng(2)
  full, shared, row = (rng.random(shape) < 0.7 for shape in ((B, T, S), (T, S), (B, 1, S)))
  combined = combine_masks(jnp.asarray(shared), None, jnp.asarray(full), jnp.asarray(row))
  chex.assert_shape(combined, (B, T, S))
  for b, t, s in np.ndindex(B, T, S):
    assert combined[b, t, s] == (full[b, t, s] and shared[t, s] and row[b, 0, s])


def test_masks_of_none_are_left_out():
  assert combine_masks() is None
  assert combine_masks(None, None) is None
  chex.assert_trees_all_equal(combine_masks(None, causal_mask(T)), causal_mask(T))


def test_a_packed_causal_mask_is_each_segments_own_causal_mask_on_the_diagonal():
  row = jnp.asarray([1] * 3 + [2] * 2 + [3] * 5 + [0], jnp.int32)
  wanted = np.zeros((S, S), bool)
  for start, length in ((0, 3), (3, 2), (5, 5)):
    wanted[start:start + length, start:start + length] = causal_mask(length)
  chex.assert_trees_all_equal(combine_masks(causal_mask(S), segment_mask(row, row)), wanted)
