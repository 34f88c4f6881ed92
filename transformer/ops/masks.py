"""Boolean attention masks, True where a query may attend: [..., T, S]."""

import functools

import jax
import jax.numpy as jnp


def causal_mask(length):
  """Lets each position attend to itself and to what came before it.

  Args:
    length: number of positions, T = S.

  Returns:
    [T, S] boolean, True where s ≤ t (section 3.2.3, "prevent leftward flow").
  """
  t = jnp.arange(length)
  return t[:, None] >= t[None, :]


def segment_mask(query_segments_BT, key_segments_BS):
  """Keeps attention inside a sentence pair, and off padding.

  Args:
    query_segments_BT: integers, the segment of every query; 0 is padding.
    key_segments_BS: the same for the keys.

  Returns:
    [..., T, S] boolean: same segment on both sides, and not padding.
  """
  same = query_segments_BT[..., :, None] == key_segments_BS[..., None, :]
  return same & (key_segments_BS[..., None, :] != 0)


def lineage_mask(lineage_BWT, index):
  """Lets each hypothesis attend to its own past in a cache that it shares with others.

  Args:
    lineage_BWT: integers, which of the W slots of each position is its own.
    index: scalar integer, the newest position.

  Returns:
    [..., W, T · W] boolean, True at slot t · W + lineage[t] for t ≤ index.
  """
  *_, beams, length = lineage_BWT.shape
  shape = (*lineage_BWT.shape, beams)
  own_BWTW = lineage_BWT[..., None] == jax.lax.broadcasted_iota(lineage_BWT.dtype, shape,
                                                                len(shape) - 1)
  past_BWTW = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 2) <= index
  return (own_BWTW & past_BWTW).reshape(*lineage_BWT.shape[:-1], length * beams)


def combine_masks(*masks):
  """True where every mask is; leading axes broadcast, None lets all through.

  Args:
    *masks: boolean [..., T, S] each, or None.

  Returns:
    [..., T, S] boolean, or None if every mask is None.
  """
  present = [mask for mask in masks if mask is not None]
  if not present:
    return None
  shape = jnp.broadcast_shapes(*(mask.shape for mask in present))
  return functools.reduce(jnp.logical_and, (jnp.broadcast_to(mask, shape) for mask in present))
