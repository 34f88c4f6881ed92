"""Functions for the notes: forms of self-attention up to the Transformer's, shifts of positions.

They are for teaching and comparison, and take plain arrays. The layers of the model, in
`model/attention.py`, are `multi_head_attention` with biases and caches. With `return_weights`, each
returns a pair: its result, and the float32 weights [..., H, T, S], where H is 1 without heads.
Raises `ValueError` if shapes do not match.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.ops.attention import (
  attention_with_weights,
  masked_softmax,
)


def basic_self_attention(x_BTD, *, return_weights=False) -> Any:
  """Returns softmax(X Xᵀ) X: averages of all vectors, weighted by similarity.

  Bloem, 2019, "Transformers from scratch", basic self-attention. It has no parameters.
  """
  return _weighted_averages(x_BTD, masked_softmax(_dot_products(x_BTD)), return_weights)


def self_attention_over_others(x_BTD, *, return_weights=False) -> Any:
  """Returns, for each vector, the average of the other vectors, weighted by similarity.

  Some lecture notes call this vanilla self-attention: o_i = Σ_{j≠i} w_ij v_j, where w_ij is
  proportional to exp(v_i · v_j / √D). For a sequence of one vector, the result is zeros.
  """
  scores = _dot_products(x_BTD)
  length, dim = x_BTD.shape[-2:]
  others = ~jnp.eye(length, dtype=bool)
  return _weighted_averages(
    x_BTD, masked_softmax(scores / dim**0.5, others), return_weights
  )


class HeadWeights(NamedTuple):
  """The matrices of multi-head attention; without `output` heads are concatenated, D = H · V."""

  query: Any  # [Q, H, K], from queries of width Q
  key: Any  # [C, H, K], from keys of width C
  value: Any  # [E, H, V], from values of width E
  output: Any = None  # [H, V, D], from all heads to width D
  output_bias: Any = None  # [D]


def multi_head_attention(
  queries_BTQ,
  keys_BSC,
  values_BSE,
  weights: HeadWeights,
  mask_BTS=None,
  *,
  scale=None,
  return_weights=False,
) -> Any:
  """MultiHead(Q, K, V) = Concat(head_1, …, head_h) Wᴼ: section 3.2.2, [..., T, D].

  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). One product projects all heads, which equals h
  separate heads. The paper has narrow heads, K = V = D / h; any other widths are allowed. Wide
  heads keep the full width, K = V = Q (Bloem, 2019, wide self-attention, where only the output
  projection has a bias). The mask and the scale are as in `dot_product_attention`.
  """
  _, heads, inner = weights.query.shape
  value_inner = weights.value.shape[-1]
  dim = heads * value_inner if weights.output is None else weights.output.shape[-1]
  shapes = (
    (queries_BTQ.shape[-1], heads, inner),
    (keys_BSC.shape[-1], heads, inner),
    (values_BSE.shape[-1], heads, value_inner),
    (heads, value_inner, dim),
    (dim,),
  )
  for name, matrix, wanted in zip(weights._fields, weights, shapes, strict=True):
    # Some other shapes would broadcast silently.
    if matrix is not None and matrix.shape != wanted:
      raise ValueError(f'{name} must be {wanted} to fit the others; got {matrix.shape}')
  out_BTHV, weights_BHTS = attention_with_weights(
    jnp.einsum('...TQ,QHK->...THK', queries_BTQ, weights.query),
    jnp.einsum('...SC,CHK->...SHK', keys_BSC, weights.key),
    jnp.einsum('...SE,EHV->...SHV', values_BSE, weights.value),
    mask_BTS,
    scale=scale,
  )
  out = (
    out_BTHV.reshape(*out_BTHV.shape[:-2], -1)
    if weights.output is None
    else jnp.einsum('...THV,HVD->...TD', out_BTHV, weights.output)
  )
  if weights.output_bias is not None:
    out += jnp.broadcast_to(weights.output_bias, out.shape)
  return (out, weights_BHTS) if return_weights else out


def sinusoidal_shift(offset, dim) -> np.ndarray | jax.Array:
  """Returns the matrix that shifts an encoding by k positions: section 3.5.

  A sine and its cosine are a point on a circle. The matrix rotates it by k / 10000^(2i/D),
  independently of the position p.

  Returns:
    M, [D, D], with PE(p + k) = M · PE(p); float64 if k is a NumPy or Python number, and float32
    if it is a JAX number, traced or not. D must be even.
  """
  if dim % 2:
    raise ValueError(
      f'dim must be even, so that each sine has its cosine; got a width of {dim}'
    )
  xp, dtype = (jnp, jnp.float32) if isinstance(offset, jax.Array) else (np, np.float64)
  periods = 10_000.0 ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
  angles = xp.asarray(offset, dtype) / periods.astype(dtype)
  cos, sin = xp.cos(angles), xp.sin(angles)
  turns = xp.stack(
    [xp.stack([cos, sin], axis=-1), xp.stack([-sin, cos], axis=-1)], axis=-2
  )
  # [I, 2, I, 2]: the rotation of each pair of dims, on the diagonal.
  own = np.eye(len(periods), dtype=bool)[:, None, :, None]
  return xp.where(own, turns[:, :, None, :], xp.zeros((), dtype)).reshape(dim, dim)


def _dot_products(x_BTD):
  """Returns the dot products of all pairs of vectors, float32 [..., T, S] with S = T."""
  is_float = jnp.issubdtype(x_BTD.dtype, jnp.floating)
  if not (is_float and x_BTD.ndim >= 2 and x_BTD.shape[-1]):
    raise ValueError(
      f'vectors must be floats [..., T, D]; got {x_BTD.dtype}{list(x_BTD.shape)}'
    )
  return jnp.einsum(
    '...TD,...SD->...TS', x_BTD, x_BTD, preferred_element_type=jnp.float32
  )


def _weighted_averages(x_BSD, weights_BTS, return_weights):
  out = jnp.einsum('...TS,...SD->...TD', weights_BTS.astype(x_BSD.dtype), x_BSD)
  return (out, weights_BTS[..., None, :, :]) if return_weights else out
