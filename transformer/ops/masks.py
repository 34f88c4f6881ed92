"""Boolean attention masks, True where a query may attend: [..., T, S]."""

import functools

import jax
import jax.numpy as jnp


def causal_mask(length) -> jax.Array:
  """Returns the mask that hides future positions, [T, S] with T = S: section 3.2.3."""
  t = jnp.arange(length)
  return t[:, None] >= t[None, :]


def segment_mask(query_segments_BT, key_segments_BS) -> jax.Array:
  """Returns the mask that keeps attention within a sentence pair and away from padding.

  It is True where the segments of a query and a key are the same and not 0, which is padding.
  """
  same = query_segments_BT[..., :, None] == key_segments_BS[..., None, :]
  return same & (key_segments_BS[..., None, :] != 0)


def lineage_mask(lineage_BWT, index) -> jax.Array:
  """Returns the mask that shows each hypothesis of a beam search its own past.

  The W hypotheses of an input share one cache of keys, with W slots for each position. The search
  drops some hypotheses and continues others twice. So the past of a hypothesis may lie in a
  different slot at each position, and its lineage lists these slots.

  Args:
    lineage_BWT: integers from 0 to W − 1, the slot of each hypothesis at each position.
    index: scalar integer, the newest position.

  Returns:
    [..., W, S] boolean with S = T · W: True at t · W + lineage[t] for t ≤ index.
  """
  *_, beams, length = lineage_BWT.shape
  shape = (*lineage_BWT.shape, beams)
  own_BWTW = lineage_BWT[..., None] == jax.lax.broadcasted_iota(
    lineage_BWT.dtype, shape, len(shape) - 1
  )
  past_BWTW = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 2) <= index
  return (own_BWTW & past_BWTW).reshape(*lineage_BWT.shape[:-1], length * beams)


def combine_masks(*masks) -> jax.Array | None:
  """Combines masks [..., T, S] by a logical and; leading axes broadcast.

  None is True everywhere, and the result where every mask is None. Masks of numbers, such as 0 and
  −∞, are refused, since they would be inverted.
  """
  present = [mask for mask in masks if mask is not None]
  for mask in present:
    if mask.dtype != jnp.bool_:
      raise ValueError(f'the mask must be boolean; got {mask.dtype}')
  return functools.reduce(jnp.logical_and, jnp.broadcast_arrays(*present)) if present else None
