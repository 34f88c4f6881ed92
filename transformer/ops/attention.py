"""Scaled dot-product attention: pure functions for whole sequences, caches and fused kernels.

Names hold shapes: B batch (any number of leading axes), T query length, S key length, H heads,
K key dim, V value dim. Shapes and types that do not fit each other raise a ValueError.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.dropout import dropout as drop

# Attention for whole sequences takes at most this many queries at a time.
_QUERIES_AT_ONCE = 256


def masked_softmax(scores, mask=None) -> jax.Array:
  """Softmax over the positions of the last axis where `mask` is True: section 3.2.3.

  It equals the paper's softmax of scores that are −∞ where `mask` is False. A row without an
  allowed position gives zeros with zero gradients, where the plain softmax would give NaN. The
  arithmetic and the result are float32. The mask broadcasts to the scores' shape, [..., S].
  """
  if mask is not None:
    _check('mask', mask, jnp.bool_, '[..., S]', scores.shape)
  scores = scores.astype(jnp.float32)
  if mask is None or not scores.shape[-1]:  # An empty row has no maximum.
    return jax.nn.softmax(scores, axis=-1)
  # The lowest finite number, not -inf: -inf - (-inf) is NaN, in the gradient too.
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
  unnormalised = jnp.where(mask, jnp.exp(scores - peak), 0.0)
  total = jnp.sum(unnormalised, axis=-1, keepdims=True)
  return unnormalised / jnp.where(total > 0.0, total, 1.0)


class WeightDropout(NamedTuple):
  """Dropout of attention weights: a JAX random key, and the rate as a Python number."""

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
  dropout: WeightDropout | None = None,
) -> jax.Array:
  """softmax(Q Kᵀ / √d_k) V for every head: equation 1 of "Attention Is All You Need".

  More than 256 queries are cut into parts, so that the memory is linear in their number. Forward
  differentiation of 16 bits is as `transformer.ops` describes.

  Args:
    q_BTHK, k_BSHK, v_BSHV: B stands for any leading axes, the same in all arguments.
    mask_BTS: boolean, True where a query may attend to a key; it broadcasts against
      [..., T, S], so a mask of keys alone is `mask_BS[:, None, :]`. None lets every query
      attend to every key. A query that may attend to no key gets zeros and finite gradients.
    bias_BHTS: floats, added to the scores before the softmax; they broadcast against
      [..., H, T, S]. −∞ hides a key as the mask does.
    scale: the number that multiplies the dot products; None is 1 / √d_k.

  Returns:
    [..., T, H, V] in the values' type.
  """
  q_BTHK, mask_BTS = _prepared(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, scale)
  if q_BTHK.shape[-3] <= _QUERIES_AT_ONCE:
    return _attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout)[0]
  return _attention_by_parts(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout)


def attention_with_weights(
  q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None
) -> tuple[jax.Array, jax.Array]:
  """Returns `dot_product_attention` and the float32 weights [..., H, T, S]; the same arguments."""
  q_BTHK, mask_BTS = _prepared(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, scale)
  return _attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, None)


def _prepared(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, scale):
  """Checks the arrays; returns the scaled queries, and the mask with all its axes."""
  check_arrays(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS)
  scale = q_BTHK.shape[-1] ** -0.5 if scale is None else scale
  if mask_BTS is not None:
    mask_BTS = jnp.broadcast_to(mask_BTS, (*q_BTHK.shape[:-2], k_BSHK.shape[-3]))
  return q_BTHK * jnp.asarray(scale, q_BTHK.dtype), mask_BTS


def _attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout):
  """Returns equation 1 with scaled queries, and the weights [..., H, T, S] before dropout."""
  narrow = q_BTHK.dtype == k_BSHK.dtype == jnp.bfloat16
  scores_BHTS = (_scores_in_16_bits if narrow else _scores)(q_BTHK, k_BSHK)
  weights_BHTS = _biased_softmax(scores_BHTS, mask_BTS, bias_BHTS)
  kept_BHTS = weights_BHTS if dropout is None else drop(dropout.key, weights_BHTS, dropout.rate)
  out_BTHV = jnp.einsum('...HTS,...SHV->...THV', kept_BHTS.astype(v_BSHV.dtype), v_BSHV)
  return out_BTHV, weights_BHTS


def _scores(q_BTHK, k_BSHK):
  return jnp.einsum('...THK,...SHK->...HTS', q_BTHK, k_BSHK, preferred_element_type=jnp.float32)


@jax.custom_vjp
def _scores_in_16_bits(q_BTHK, k_BSHK):
  """Returns `_scores`; the products of its gradient have factors of 16 bits, too."""
  return _scores(q_BTHK, k_BSHK)


def _scores_backward(saved, gradient_BHTS):
  q_BTHK, k_BSHK = saved
  gradient_BHTS = gradient_BHTS.astype(q_BTHK.dtype)
  return (
    jnp.einsum('...HTS,...SHK->...THK', gradient_BHTS, k_BSHK),
    jnp.einsum('...HTS,...THK->...SHK', gradient_BHTS, q_BTHK),
  )


_scores_in_16_bits.defvjp(
  lambda q_BTHK, k_BSHK: (_scores(q_BTHK, k_BSHK), (q_BTHK, k_BSHK)), _scores_backward
)


def _biased_softmax(scores_BHTS, mask_BTS, bias_BHTS):
  """Returns the masked softmax of scores plus the bias, whose −∞ hides keys."""
  mask_BHTS = None if mask_BTS is None else jnp.expand_dims(mask_BTS, -3)
  if bias_BHTS is not None:
    scores_BHTS += jnp.broadcast_to(bias_BHTS, scores_BHTS.shape)
    seen_BHTS = jnp.broadcast_to(bias_BHTS != -jnp.inf, scores_BHTS.shape)
    mask_BHTS = seen_BHTS if mask_BHTS is None else mask_BHTS & seen_BHTS
  return masked_softmax(scores_BHTS, mask_BHTS)


def _attention_by_parts(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, dropout):
  """Returns equation 1 part by part, in the backward pass too, in memory linear in the queries."""
  length = q_BTHK.shape[-3]
  parts = -(-length // _QUERIES_AT_ONCE)
  size = -(-length // parts)

  def cut(x, axis):
    """Pads axis `axis` < 0 and cuts it into equal parts, which a new first axis numbers."""
    axis += x.ndim
    padding = [(0, 0)] * x.ndim
    padding[axis] = 0, parts * size - length
    x = jnp.pad(x, padding)
    return jnp.moveaxis(x.reshape(*x.shape[:axis], parts, size, *x.shape[axis + 1 :]), axis, 0)

  @jax.checkpoint
  def attend(part):
    number, q, mask, bias = part
    own = None if dropout is None else dropout._replace(key=jax.random.fold_in(dropout.key, number))
    return _attention(q, k_BSHK, v_BSHV, mask, bias, own)[0]

  if bias_BHTS is not None:  # Every part needs its own queries' rows.
    bias_BHTS = jnp.broadcast_to(
      bias_BHTS, jnp.broadcast_shapes(bias_BHTS.shape, (length, k_BSHK.shape[-3]))
    )
  mask, bias = (None if x is None else cut(x, -2) for x in (mask_BTS, bias_BHTS))
  out = jax.lax.map(attend, (jnp.arange(parts), cut(q_BTHK, -3), mask, bias))
  out = jnp.moveaxis(out, 0, -4)
  return out.reshape(*out.shape[:-4], parts * size, *out.shape[-2:])[..., :length, :, :]


def cached_attention(
  q_BTHK, keys_BHKS, values_BHSV, mask_BTS=None, bias_BHTS=None, *, scale=None
) -> jax.Array:
  """Equation 1 on cached keys and values with S slots, which T hypotheses of one input share.

  The cache has the layout that the matrix products need. So it is not transposed at every step,
  as `dot_product_attention` would do; all else is as there.
  """
  # Shapes alone, in the layout of the other functions.
  k_BSHK, v_BSHV = jax.eval_shape(
    lambda keys, values: (jnp.moveaxis(keys, -1, -3), jnp.swapaxes(values, -3, -2)),
    keys_BHKS,
    values_BHSV,
  )
  q_BTHK, mask_BTS = _prepared(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS, scale)
  q_BHTK = jnp.swapaxes(q_BTHK, -3, -2)
  scores_BHTS = jnp.einsum(
    '...HTK,...HKS->...HTS', q_BHTK, keys_BHKS, preferred_element_type=jnp.float32
  )
  weights_BHTS = _biased_softmax(scores_BHTS, mask_BTS, bias_BHTS)
  out_BHTV = jnp.einsum(
    '...HTS,...HSV->...HTV', weights_BHTS.astype(values_BHSV.dtype), values_BHSV
  )
  return jnp.swapaxes(out_BHTV, -3, -2)


def fused_attention(
  q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None, *, scale=None
) -> jax.Array:
  """Returns `dot_product_attention` of 16-bit floats by cuDNN's kernel for NVIDIA GPUs; K = V."""
  check_arrays(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_BHTS)
  leading, queries, keys = q_BTHK.shape[:-3], q_BTHK.shape[-3], v_BSHV.shape[-3]
  if q_BTHK.shape[-1] != v_BSHV.shape[-1]:
    raise ValueError(
      f'the cudnn kernel needs the same key dim and value dim; got '
      f'{q_BTHK.shape[-1]} and {v_BSHV.shape[-1]}'
    )

  def rows(x):
    """Joins the leading axes of a mask or bias, or gives it one; its H stays as it is."""
    if x is None:
      return None
    if x.ndim < 3:
      x = jnp.broadcast_to(x, (1, *jnp.broadcast_shapes(x.shape, (queries, keys))))
    own = leading if math.prod(x.shape[:-3]) > 1 else x.shape[:-3]
    return jnp.broadcast_to(x, (*own, x.shape[-3], queries, keys)).reshape(
      -1, x.shape[-3], queries, keys
    )

  q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (q_BTHK, k_BSHK, v_BSHV))
  mask = None if mask_BTS is None else rows(jnp.expand_dims(mask_BTS, -3))
  bias = rows(bias_BHTS)
  if bias is not None:
    seen = bias != -jnp.inf
    mask, bias = seen if mask is None else mask & seen, jnp.where(seen, bias, 0).astype(q.dtype)
  if mask is not None:
    # A query that may attend to nothing gets all keys and then zeros. Without a key, the gradient
    # of the kernel is NaN where the number of keys is no multiple of its blocks.
    has_keys_BHT1 = jnp.any(mask, axis=-1, keepdims=True)
    mask |= ~has_keys_BHT1
  out = jax.nn.dot_product_attention(
    q, k, v, bias=bias, mask=mask, scale=scale, implementation='cudnn'
  )
  if mask is not None:
    out = jnp.where(jnp.swapaxes(has_keys_BHT1, -3, -2), out, jnp.zeros((), out.dtype))
  return out.reshape(q_BTHK.shape)


def missing_for_fused_attention(key_dim: int) -> str:
  """Returns what the default device lacks for `fused_attention` with such heads; '' if nothing."""
  if jax.default_backend() != 'gpu':
    return f'an NVIDIA GPU; JAX runs on {jax.default_backend()} here'
  # Such as 8.0; other makers than NVIDIA have names there.
  capability = getattr(jax.devices()[0], 'compute_capability', '')
  if key_dim > 128 and capability[:1].isdigit() and float(capability) < 9:
    return (
      f'a GPU of compute capability 9.0 for heads of more than 128 dims; got '
      f'key_dim={key_dim} and {capability}'
    )
  return ''


def check_arrays(q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_BHTS=None):
  """Raises a ValueError for wrong types and shapes, some of which would broadcast silently."""
  arrays = q_BTHK, k_BSHK, v_BSHV
  q, k, v = (array.shape for array in arrays)
  if not (
    min(len(q), len(k), len(v)) >= 3
    and q[:-3] == k[:-3] == v[:-3]
    and k[-3] == v[-3]
    and q[-2] == k[-2] == v[-2]
    and q[-1] == k[-1] > 0
    and all(jnp.issubdtype(array.dtype, jnp.floating) for array in arrays)
  ):
    raise ValueError(
      'queries, keys and values must be floats [..., T, H, K], [..., S, H, K] and [..., S, H, V] '
      'with the same leading axes, S, H and K; got '
      + ', '.join(f'{array.dtype}{list(array.shape)}' for array in arrays)
    )
  if mask_BTS is not None:
    _check('mask', mask_BTS, jnp.bool_, '[..., T, S]', (*q[:-2], k[-3]), 2)
  if bias_BHTS is not None:
    _check('bias', bias_BHTS, jnp.floating, '[..., H, T, S]', (*q[:-3], q[-2], q[-3], k[-3]))


def _check(name, array, kind, axes, wanted, least_axes=0):
  """Refuses an array of another kind, or one that would make the wanted shape larger."""
  given = array.shape
  if not (
    jnp.issubdtype(array.dtype, kind)
    and least_axes <= len(given) <= len(wanted)
    and all(size in (1, want) for size, want in zip(given[::-1], wanted[::-1], strict=False))
  ):
    raise ValueError(
      f'the {name} must be {"boolean" if kind == jnp.bool_ else "floats"} and '
      f'broadcast to {axes} = {wanted}; got {array.dtype} {given}'
    )
