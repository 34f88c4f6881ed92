"""Scaled dot-product attention: pure functions for whole sequences and for caches.

Names hold shapes: B any number of leading axes, T query length, S key length, H heads, K key dim,
V value dim. Functions raise a ValueError for mismatched shapes or types.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.axes import split_axis
from transformer.ops.dropout import dropout as drop

# Maximum number of queries in a chunk of attention over whole sequences.
_QUERIES_AT_ONCE = 256


def masked_softmax(scores, mask=None) -> jax.Array:
  """Softmax over the positions of the last axis where `mask` is True: section 3.2.3.

  Equals the paper's softmax of scores that are −∞ where `mask` is False. A fully masked row
  yields zeros with zero gradients, where the plain softmax yields NaN. The computation and the
  result are float32. The mask broadcasts to the shape of the scores, [..., S].
  """
  scores = scores.astype(jnp.float32)
  if mask is None:
    return jax.nn.softmax(scores, axis=-1)
  if mask.dtype != jnp.bool_:
    raise ValueError(
      f'the mask must be boolean, True where a query may attend; got {mask.dtype}'
    )
  mask = jnp.broadcast_to(mask, scores.shape)
  # The lowest finite number, not -inf: -inf - (-inf) is NaN, in the gradient too.
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
  unnormalized = jnp.where(mask, jnp.exp(scores - peak), 0.0)
  total = jnp.sum(unnormalized, axis=-1, keepdims=True)
  return unnormalized / jnp.where(total > 0.0, total, 1.0)


class AttentionDropout(NamedTuple):
  """Dropout of attention weights: a JAX random key, and the rate as a Python float."""

  key: jax.Array
  rate: float


def dot_product_attention(
  q_BTHK,
  k_BSHK,
  v_BSHV,
  mask_BTS=None,
  bias_BHTS=None,
  *,
  scale=None,
  dropout: AttentionDropout | None = None,
) -> jax.Array:
  """softmax(Q Kᵀ / √d_k) V for every head: equation 1 of "Attention Is All You Need".

  More than 256 queries are processed in chunks, so that the scores of at most 256 queries are in
  memory at once. Mask and bias are in memory for all queries.
  For forward-mode differentiation in 16 bits, see `transformer.ops`.

  Args:
    q_BTHK, k_BSHK, v_BSHV: B stands for any leading axes, the same in all arguments.
    mask_BTS: boolean, True where a query may attend to a key. It broadcasts to [..., T, S], so a
      mask of keys is `mask_BS[:, None, :]`. None lets every query attend to every key. A query
      that may attend to no key gets zeros and finite gradients.
    bias_BHTS: floats, added to the scores before the softmax. They broadcast to [..., H, T, S].
      −∞ masks a key.
    scale: factor on the dot products; None is 1 / √d_k.

  Returns [..., T, H, V] in the type of the values.
  """
  check_arrays(q_BTHK, k_BSHK, v_BSHV)
  q_BTHK = _scaled(q_BTHK, scale)
  if q_BTHK.shape[-3] <= _QUERIES_AT_ONCE:
    return _attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout)[0]
  return _attention_by_parts(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout)


def attention_with_weights(
  q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None
) -> tuple[jax.Array, jax.Array]:
  """Returns the output of `dot_product_attention`, and float32 weights [..., H, T, S]."""
  check_arrays(q_BTHK, k_BSHK, v_BSHV)
  return _attention(_scaled(q_BTHK, scale), k_BSHK, v_BSHV, mask_BTS, bias_BHTS, None)


def cached_attention(
  q_BTHK, keys_BHKS, values_BHSV, mask_BTS=None, bias_BHTS=None, *, scale=None
) -> jax.Array:
  """Equation 1 on cached keys and values of S slots, which the T hypotheses of an input share.

  The cache is stored in the layout of the matrix products, so no step transposes it. With
  `dot_product_attention`, which transposes, a search takes 7 to 24% longer on a CPU.
  """
  scores_BHTS = jnp.einsum(
    '...THK,...HKS->...HTS',
    _scaled(q_BTHK, scale),
    keys_BHKS,
    preferred_element_type=jnp.float32,
  )
  weights_BHTS = _biased_softmax(scores_BHTS, mask_BTS, bias_BHTS).astype(
    values_BHSV.dtype
  )
  # One einsum to [..., T, H, V] would multiply values by weights instead, a product that XLA
  # computes slowly on a CPU: a search would take 30% longer.
  out_BHTV = jnp.einsum('...HTS,...HSV->...HTV', weights_BHTS, values_BHSV)
  return jnp.swapaxes(out_BHTV, -3, -2)


def _scaled(q_BTHK, scale):
  scale = q_BTHK.shape[-1] ** -0.5 if scale is None else scale
  return q_BTHK * jnp.asarray(scale, q_BTHK.dtype)


def _attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout):
  """Returns equation 1 for scaled queries, and the weights [..., H, T, S] before dropout."""
  narrow = q_BTHK.dtype == k_BSHK.dtype == jnp.bfloat16
  scores_BHTS = (_scores_in_16_bits if narrow else _scores)(q_BTHK, k_BSHK)
  weights_BHTS = _biased_softmax(scores_BHTS, mask_BTS, bias_BHTS)
  kept_BHTS = (
    weights_BHTS if dropout is None else drop(dropout.key, weights_BHTS, dropout.rate)
  )
  out_BTHV = jnp.einsum('...HTS,...SHV->...THV', kept_BHTS.astype(v_BSHV.dtype), v_BSHV)
  return out_BTHV, weights_BHTS


def _scores(q_BTHK, k_BSHK):
  return jnp.einsum(
    '...THK,...SHK->...HTS', q_BTHK, k_BSHK, preferred_element_type=jnp.float32
  )


@jax.custom_vjp
def _scores_in_16_bits(q_BTHK, k_BSHK):
  """Computes `_scores`; the matrix products of its gradient also have 16-bit factors."""
  return _scores(q_BTHK, k_BSHK)


def _scores_forward(q_BTHK, k_BSHK):
  return _scores(q_BTHK, k_BSHK), (q_BTHK, k_BSHK)


def _scores_backward(residuals, gradient_BHTS):
  q_BTHK, k_BSHK = residuals
  gradient_BHTS = gradient_BHTS.astype(q_BTHK.dtype)
  return (
    jnp.einsum('...HTS,...SHK->...THK', gradient_BHTS, k_BSHK),
    jnp.einsum('...HTS,...THK->...SHK', gradient_BHTS, q_BTHK),
  )


_scores_in_16_bits.defvjp(_scores_forward, _scores_backward)


def _biased_softmax(scores_BHTS, mask_BTS, bias_BHTS):
  """Returns the masked softmax of scores plus bias; a bias of −∞ masks a key."""
  shape = scores_BHTS.shape
  mask_BHTS = None
  if mask_BTS is not None:
    mask_BHTS = jnp.expand_dims(
      jnp.broadcast_to(mask_BTS, (*shape[:-3], *shape[-2:])), -3
    )
  if bias_BHTS is not None:
    bias_BHTS = jnp.broadcast_to(bias_BHTS, shape)
    scores_BHTS += bias_BHTS
    seen_BHTS = bias_BHTS != -jnp.inf
    mask_BHTS = seen_BHTS if mask_BHTS is None else mask_BHTS & seen_BHTS
  return masked_softmax(scores_BHTS, mask_BHTS)


def _attention_by_parts(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout):
  """Returns equation 1 in chunks of queries, in the backward pass, too."""
  length = q_BTHK.shape[-3]
  parts = -(-length // _QUERIES_AT_ONCE)
  size = -(-length // parts)

  def split_rows(x):
    if x is None:
      return None
    shape = jnp.broadcast_shapes(x.shape, (length, k_BSHK.shape[-3]))
    return split_axis(jnp.broadcast_to(x, shape), len(shape) - 2, parts, size)

  @jax.checkpoint
  def attend(part):
    index, q, mask, bias = part
    part_dropout = (
      None
      if dropout is None
      else dropout._replace(key=jax.random.fold_in(dropout.key, index))
    )
    return _attention(q, k_BSHK, v_BSHV, mask, bias, part_dropout)[0]

  inputs = (
    jnp.arange(parts),
    split_axis(q_BTHK, q_BTHK.ndim - 3, parts, size),
    split_rows(mask_BTS),
    split_rows(bias_BHTS),
  )
  out = jnp.moveaxis(jax.lax.map(attend, inputs), 0, -4)
  return jax.lax.collapse(out, out.ndim - 4, out.ndim - 2)[..., :length, :, :]


def check_arrays(q_BTHK, k_BSHK, v_BSHV):
  """Raises a ValueError for types or shapes that JAX would convert or broadcast silently."""
  arrays = (q_BTHK, k_BSHK, v_BSHV)
  are_floats = all(jnp.issubdtype(array.dtype, jnp.floating) for array in arrays)
  shapes_match = (
    q_BTHK.shape[:-3] == k_BSHK.shape[:-3] and q_BTHK.shape[-2:] == k_BSHK.shape[-2:]
  )
  if not (are_floats and shapes_match and k_BSHK.shape[:-1] == v_BSHV.shape[:-1]):
    shapes = ', '.join(f'{array.dtype}{list(array.shape)}' for array in arrays)
    raise ValueError(
      'queries, keys and values must be floats [..., T, H, K], [..., S, H, K] and [..., S, H, V] '
      f'with the same leading axes, S, H and K; got {shapes}'
    )
