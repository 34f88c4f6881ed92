"""Masks let through exactly what section 3.2.3 and packing allow."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.ops.masks import causal_mask, combine_masks, lineage_mask, segment_mask

T, S, B = 7, 11, 3


def segments(length, seed):
  """Rows of segments, numbered from 1, that end in padding."""
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


def test_combined_masks_let_through_what_each_lets_through():
  rng = np.random.default_rng(2)
  full, shared, row = (rng.random(shape) < 0.7 for shape in ((B, T, S), (T, S), (B, 1, S)))
  combined = combine_masks(jnp.asarray(shared), None, jnp.asarray(full), jnp.asarray(row))
  chex.assert_shape(combined, (B, T, S))
  for b, t, s in np.ndindex(B, T, S):
    assert combined[b, t, s] == (full[b, t, s] and shared[t, s] and row[b, 0, s])


def test_no_mask_lets_all_through_and_is_left_out():
  assert combine_masks() is None
  assert combine_masks(None, None) is None
  chex.assert_trees_all_equal(combine_masks(None, causal_mask(T)), causal_mask(T))


def test_a_packed_causal_mask_is_each_segments_own_causal_mask_on_the_diagonal():
  row = jnp.asarray([1] * 3 + [2] * 2 + [3] * 5 + [0], jnp.int32)
  wanted = np.zeros((S, S), bool)
  for start, length in ((0, 3), (3, 2), (5, 5)):
    wanted[start:start + length, start:start + length] = causal_mask(length)
  chex.assert_trees_all_equal(combine_masks(causal_mask(S), segment_mask(row, row)), wanted)
