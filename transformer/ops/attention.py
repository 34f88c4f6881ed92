"""Scaled dot-product attention, as one pure function with a choice of kernels.

Shapes are in names: B batch (any number of leading axes), T query length,
S key length, H heads, K key dim, V value dim.
"""

import jax
import jax.numpy as jnp

IMPLEMENTATIONS = ('reference', 'cudnn')
# The reference path takes longer sequences in parts.
_QUERIES_AT_ONCE = 256


def masked_softmax(scores, mask=None):
  """Softmax over the last axis of the positions that `mask` lets through: section 3.2.3.

  The paper sets what is forbidden to −∞ before the softmax; where something is left,
  this is the same. A row in which nothing is let through gives zeros, with zero
  gradients, where the plain softmax would give NaN or spread its weight over what
  is forbidden.

  Args:
    scores: [..., S], any float type; the arithmetic is float32.
    mask: boolean, same shape as `scores` up to broadcasting, True where a
      position counts; None lets all through.

  Returns:
    [..., S] float32 weights, each row summing to one or to zero.
  """
  scores = scores.astype(jnp.float32)
  if mask is None or not scores.shape[-1]:  # Of nothing at all there is no maximum.
    return jax.nn.softmax(scores, axis=-1)
  # The lowest finite number, not -inf: -inf - (-inf) is NaN, in the gradient too.
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
  unnormalised = jnp.where(mask, jnp.exp(scores - peak), 0.0)
  total = jnp.sum(unnormalised, axis=-1, keepdims=True)
  return unnormalised / jnp.where(total > 0.0, total, 1.0)


def dot_product_attention(
    q_BTHK, k_BSHK, v_BSHV, mask_BTS=None, bias_HTS=None, *, implementation='reference',
    return_weights=False
):
  """softmax(Q Kᵀ / √d_k) V for every head: equation 1 of "Attention Is All You Need".

  Args:
    q_BTHK: queries; B stands for any leading axes, the same in all arguments.
    k_BSHK: keys.
    v_BSHV: values.
    mask_BTS: boolean, True where a query may attend to a key; it broadcasts
      against [..., T, S]. None lets every query attend to every key. A query
      that may attend to nothing gets zeros and finite gradients.
    bias_HTS: float [H, T, S], added to the scores before the softmax; None adds
      nothing.
    implementation: `reference`, which takes more than 256 queries in parts, so
      that memory grows with their number alone; or `cudnn` for the fused kernel
      on an NVIDIA GPU (16-bit floats and K = V only). Asking for weights takes the
      reference path, all queries at once.
    return_weights: also return the attention weights.

  Returns:
    [..., T, H, V] in the values' type; with `return_weights` a pair, the second
    being float32 weights [..., H, T, S].

  Raises:
    ValueError: shapes that do not fit each other, numbers that are no floats, or an
      unknown implementation.
  """
  _check_shapes(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS)
  if implementation not in IMPLEMENTATIONS:
    raise ValueError(f'implementation must be one of {", ".join(IMPLEMENTATIONS)}; '
                     f'got {implementation!r}')
  if implementation == 'cudnn' and not return_weights:
    return _cudnn_attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS)
  if mask_BTS is not None:
    mask_BTS = jnp.broadcast_to(
        mask_BTS, (*q_BTHK.shape[:-3], q_BTHK.shape[-3], k_BSHK.shape[-3]))
  if return_weights:
    return _reference_attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS)
  if q_BTHK.shape[-3] <= _QUERIES_AT_ONCE:
    return _reference_attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS)[0]
  return _attention_by_parts(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS)


def _reference_attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS):
  """Equation 1 as it stands; outputs, and weights [..., H, T, S]."""
  scale = q_BTHK.shape[-1] ** -0.5
  scores = jnp.einsum('...THK,...SHK->...HTS', q_BTHK * jnp.asarray(scale, q_BTHK.dtype), k_BSHK,
                      preferred_element_type=jnp.float32)
  if bias_HTS is not None:
    scores += jnp.broadcast_to(bias_HTS, scores.shape)
  weights = masked_softmax(scores, None if mask_BTS is None else jnp.expand_dims(mask_BTS, -3))
  return jnp.einsum('...HTS,...SHV->...THV', weights.astype(v_BSHV.dtype), v_BSHV), weights


def _attention_by_parts(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS):
  """The same for some queries at a time, and again in the backward pass.

  What a gradient needs to keep grows with the length then, not with its square.
  """
  length = q_BTHK.shape[-3]
  parts = -(-length // _QUERIES_AT_ONCE)
  size = -(-length // parts)

  def cut(x, axis):
    """Axis `axis`, from the end, into parts of one size, which come first."""
    axis += x.ndim
    x = jnp.pad(x, [(0, parts * size - length if each == axis else 0) for each in range(x.ndim)])
    return jnp.moveaxis(x.reshape(*x.shape[:axis], parts, size, *x.shape[axis + 1:]), axis, 0)

  @jax.checkpoint
  def attend(part):
    q, mask, bias = part
    return _reference_attention(q, k_BSHK, v_BSHV, mask, bias)[0]

  out = jax.lax.map(attend, (cut(q_BTHK, -3), *(
      None if each is None else cut(each, -2) for each in (mask_BTS, bias_HTS))))
  out = jnp.moveaxis(out, 0, -4)
  return out.reshape(*out.shape[:-4], parts * size, *out.shape[-2:])[..., :length, :, :]


def cached_attention(q_BTHK, keys_BHKS, values_BHSV, mask_BTS, bias_HTS=None):
  """Attention to keys and values that lie as their products read them; for decoding.

  Equation 1 again: the same as `dot_product_attention` to the transposed keys and values,
  without transposing them at every step.

  Args:
    q_BTHK: queries that share their keys and values, such as the beams of an
      input; B stands for any leading axes.
    keys_BHKS: keys, slots last.
    values_BHSV: values.
    mask_BTS: boolean [..., T, S], True where a query may attend to a slot.
    bias_HTS: float, added to the scores; it broadcasts against [H, T, S].

  Returns:
    [..., T, H, V] in the values' type.
  """
  scale = q_BTHK.shape[-1] ** -0.5
  q_BHTK = jnp.swapaxes(q_BTHK * jnp.asarray(scale, q_BTHK.dtype), -3, -2)
  scores_BHTS = jnp.einsum('...HTK,...HKS->...HTS', q_BHTK, keys_BHKS,
                           preferred_element_type=jnp.float32)
  if bias_HTS is not None:
    scores_BHTS += jnp.broadcast_to(bias_HTS, scores_BHTS.shape)
  weights_BHTS = masked_softmax(scores_BHTS, mask_BTS[..., None, :, :])
  out_BHTV = jnp.einsum('...HTS,...HSV->...HTV', weights_BHTS.astype(values_BHSV.dtype),
                        values_BHSV)
  return jnp.swapaxes(out_BHTV, -3, -2)


def _cudnn_attention(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS):
  """The fused kernel, which knows one leading axis, brought to this module's contract."""
  leading, (queries, heads, key_dim) = q_BTHK.shape[:-3], q_BTHK.shape[-3:]
  keys, value_dim = v_BSHV.shape[-3], v_BSHV.shape[-1]
  if key_dim != value_dim:
    raise ValueError(f'the cudnn kernel needs the same key dim and value dim; '
                     f'got {key_dim} and {value_dim}')
  q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (q_BTHK, k_BSHK, v_BSHV))
  mask = None
  if mask_BTS is not None:
    mask = jnp.broadcast_to(mask_BTS, (*leading, queries, keys)).reshape(-1, 1, queries, keys)
  bias = None if bias_HTS is None else bias_HTS[None].astype(q.dtype)
  out = jax.nn.dot_product_attention(q, k, v, bias=bias, mask=mask, implementation='cudnn')
  if mask is not None:
    # The kernel averages over everything where a query may attend to nothing.
    some = jnp.any(mask, axis=-1)[:, 0, :, None, None]
    out = jnp.where(some, out, jnp.zeros((), out.dtype))
  return out.reshape(*leading, queries, heads, value_dim)


def check_floats(name, x):
  """Refuses whole numbers, to which weights between 0 and 1 would be rounded."""
  if not jnp.issubdtype(x.dtype, jnp.floating):
    raise ValueError(f'the {name} must be floats; got {x.dtype}')


def _check_shapes(q_BTHK, k_BSHK, v_BSHV, mask_BTS, bias_HTS):
  """Refuses arguments that numpy's broadcasting would quietly bend to fit."""
  q, k, v = q_BTHK.shape, k_BSHK.shape, v_BSHV.shape
  if min(len(q), len(k), len(v)) < 3:
    raise ValueError(f'queries, keys and values must be [..., length, heads, dim]; '
                     f'got {q}, {k} and {v}')
  for name, x in (('queries', q_BTHK), ('keys', k_BSHK), ('values', v_BSHV)):
    check_floats(name, x)
  if not q[:-3] == k[:-3] == v[:-3]:
    raise ValueError(f'queries, keys and values must share their leading axes; '
                     f'got {q}, {k} and {v}')
  if not q[-2] == k[-2] == v[-2]:
    raise ValueError(f'queries, keys and values must have the same number of heads; '
                     f'got {q[-2]}, {k[-2]} and {v[-2]}')
  if q[-1] != k[-1]:
    raise ValueError(f'queries and keys must have the same key dim; got {q[-1]} and {k[-1]}')
  if k[-3] != v[-3]:
    raise ValueError(f'keys and values must have the same length; got {k[-3]} and {v[-3]}')
  if mask_BTS is not None:
    wanted = (*q[:-3], q[-3], k[-3])
    given = mask_BTS.shape
    fits = 2 <= len(given) <= len(wanted) and all(
        have in (1, want) for have, want in zip(given[::-1], wanted[::-1], strict=False))
    if mask_BTS.dtype != jnp.bool_ or not fits:
      raise ValueError(f'the mask must be boolean and broadcast to [..., T, S] = {wanted}; '
                       f'got {mask_BTS.dtype} {given}')
  if bias_HTS is not None and bias_HTS.shape != (q[-2], q[-3], k[-3]):
    raise ValueError(f'the bias must be [H, T, S] = {(q[-2], q[-3], k[-3])}; got {bias_HTS.shape}')
