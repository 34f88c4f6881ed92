"""Boolean attention masks, True where a query may attend: [..., T, S]."""

import functools
import operator

import jax
import jax.numpy as jnp


def causal_mask(length) -> jax.Array:
  """Returns the mask that hides future positions, [T, S] with T = S: section 3.2.3."""
  return jnp.tri(length, dtype=bool)


def segment_mask(query_segments_BT, key_segments_BS) -> jax.Array:
  """Returns the mask that restricts attention to the same sentence pair and excludes padding.

  It is True where the segments of a query and a key are equal and not 0, which is padding.
  """
  same_segment = query_segments_BT[..., :, None] == key_segments_BS[..., None, :]
  return same_segment & (key_segments_BS[..., None, :] != 0)


def lineage_mask(lineage_BWT, index) -> jax.Array:
  """Returns the mask with which each hypothesis of a beam search attends to its own prefix.

  The W hypotheses of an input share one key cache, with W slots per position. The search drops
  some hypotheses and continues others more than once. So the prefix of a hypothesis may be in a
  different slot at each position. The lineage of a hypothesis lists these slots.

  Args:
    lineage_BWT: integers from 0 to W − 1, the slot of each hypothesis at each position.
    index: scalar integer, the latest position.

  Returns:
    [..., W, S] boolean with S = T · W: True at t · W + lineage[t] for t ≤ index.
  """
  *_, beams, length = lineage_BWT.shape
  past_BWT = jnp.broadcast_to(jnp.arange(length) <= index, lineage_BWT.shape)
  seen_BWTW = jax.nn.one_hot(jnp.where(past_BWT, lineage_BWT, -1), beams, dtype=bool)
  return seen_BWTW.reshape(*lineage_BWT.shape[:-1], length * beams)


def combine_masks(*masks) -> jax.Array:
  """Returns the logical and of boolean masks [..., T, S]; leading axes broadcast."""
  return functools.reduce(operator.and_, jnp.broadcast_arrays(*masks))
