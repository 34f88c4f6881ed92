"""Self-attention as it is usually built up, step by step, towards that of the Transformer.

None of these knows of a framework: inputs and weights are arrays. The model's own
layers (`model/attention.py`) are `multi_head_attention` with biases and caches.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from transformer.ops.attention import check_floats, dot_product_attention, masked_softmax


def basic_self_attention(x_BTD, *, return_weights=False):
  """softmax(X Xᵀ) X: every vector becomes an average of all, by likeness; no parameters.

  Bloem, 2019, "Transformers from scratch", basic self-attention. Permuting the
  input permutes the output.

  Args:
    x_BTD: vectors, one a row.
    return_weights: also return the weights.

  Returns:
    [..., T, D]; with `return_weights` a pair, the second being float32 weights with
    one head, [..., 1, T, T].

  Raises:
    ValueError: the vectors have no rows, or are no floats.
  """
  return _averages(x_BTD, masked_softmax(_likeness(x_BTD)), return_weights)


def self_attention_over_others(x_BTD, *, return_weights=False):
  """o_i = Σ_{j≠i} w_j v_j with w_j ∝ exp(v_i · v_j / √d): a vector is no part of its own average.

  The vanilla self-attention of the lecture notes behind this project, which describe a token
  by the others of its sentence. A sequence of one has no others, and gives zeros.

  Args:
    x_BTD: vectors, one a row.
    return_weights: also return the weights.

  Returns:
    As `basic_self_attention`; the diagonal of the weights is zero.

  Raises:
    ValueError: as `basic_self_attention`.
  """
  scores = _likeness(x_BTD)
  length, dim = x_BTD.shape[-2:]
  others = ~jnp.eye(length, dtype=bool)
  return _averages(x_BTD, masked_softmax(scores / dim ** 0.5, others), return_weights)


class HeadWeights(NamedTuple):
  """The matrices of multi-head attention.

  Attributes:
    query: [Q, H, K], from queries of width Q.
    key: [C, H, K], from keys of width C.
    value: [E, H, V], from values of width E.
    output: [H, V, D], from all heads to width D; None leaves the heads side by side, so
      that D = H · V.
    output_bias: [D], or None.
  """

  query: Any
  key: Any
  value: Any
  output: Any = None
  output_bias: Any = None


def multi_head_attention(queries_BTQ, keys_BSC, values_BSE, weights: HeadWeights, mask_BTS=None, *,
                         return_weights=False):
  """MultiHead(Q, K, V) = Concat(head_1, …, head_h) Wᴼ: section 3.2.2.

  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). All heads are projected in one
  product and split afterwards, which equals h separate heads. The heads are narrow
  where K = V = D / h, and any other width will do. Without the output projection it is
  multi-head attention as lecture notes define it that stop at the heads side by side.

  Args:
    queries_BTQ: what asks; B stands for any leading axes.
    keys_BSC: what is compared with.
    values_BSE: what is averaged.
    weights: one matrix for every head of each.
    mask_BTS: boolean, True where a query may attend; None lets all through.
    return_weights: also return the weights.

  Returns:
    [..., T, D], or [..., T, H · V] without an output projection; with
    `return_weights` a pair, the second being float32 weights [..., H, T, S].

  Raises:
    ValueError: a matrix does not fit the others or what it multiplies, or
      `dot_product_attention` refuses what comes of them.
  """
  _check_matrices(queries_BTQ.shape[-1], keys_BSC.shape[-1], values_BSE.shape[-1], weights)
  out_BTHV, weights_BHTS = dot_product_attention(
      jnp.einsum('...TQ,QHK->...THK', queries_BTQ, weights.query),
      jnp.einsum('...SC,CHK->...SHK', keys_BSC, weights.key),
      jnp.einsum('...SE,EHV->...SHV', values_BSE, weights.value), mask_BTS, return_weights=True)
  if weights.output is None:
    out = out_BTHV.reshape(*out_BTHV.shape[:-2], -1)
  else:
    out = jnp.einsum('...THV,HVD->...TD', out_BTHV, weights.output)
  if weights.output_bias is not None:
    out += jnp.broadcast_to(weights.output_bias, out.shape)
  return (out, weights_BHTS) if return_weights else out


def wide_multi_head_attention(x_BTK, weights: HeadWeights, mask_BTT=None, *, return_weights=False):
  """Multi-head self-attention in which every head keeps the full width k.

  Bloem, 2019, "Transformers from scratch", wide self-attention: projections
  k → h · k without bias, queries and keys each divided by k^¼, which keeps their
  product as small as dividing it by √k, and h · k → k with a bias.

  Args:
    x_BTK: vectors of width k.
    weights: query, key and value [K, H, K], output [H, K, K], output_bias [K].
    mask_BTT: boolean, True where a vector may attend to another.
    return_weights: also return the weights.

  Returns:
    [..., T, K]; with `return_weights` a pair, the second being float32 [..., H, T, T].

  Raises:
    ValueError: a head or the output has another width than the input, the output has no
      projection with a bias, or `multi_head_attention` refuses it.
  """
  width = x_BTK.shape[-1]
  for name, matrix in zip(weights._fields[:3], weights, strict=False):
    if matrix.shape[0] != width or matrix.shape[-1] != width:
      raise ValueError(f'a wide head keeps the width {width} of its input; '
                       f'{name} is {matrix.shape}')
  if weights.output is None or weights.output_bias is None:
    raise ValueError('wide heads need an output projection with a bias')
  if weights.output.shape[-1] != width:
    raise ValueError(f'wide heads are projected to the width {width} of the input; '
                     f'output is {weights.output.shape}')
  # Dividing both by k^¼ is dividing their product by √k, which is what these do.
  return multi_head_attention(x_BTK, x_BTK, x_BTK, weights, mask_BTT,
                              return_weights=return_weights)


def _check_matrices(query_dim, key_dim, value_dim, weights):
  """Refuses matrices that einsum's broadcasting would quietly bend to fit."""
  for name in ('query', 'key', 'value', 'output'):
    matrix = getattr(weights, name)
    if matrix is not None and matrix.ndim != 3:
      raise ValueError(f'{name} must have three axes; got {matrix.shape}')
  (_, heads, inner), value_inner = weights.query.shape, weights.value.shape[-1]
  dim = heads * value_inner if weights.output is None else weights.output.shape[-1]
  for name, wanted in (('query', (query_dim, heads, inner)), ('key', (key_dim, heads, inner)),
                       ('value', (value_dim, heads, value_inner)),
                       ('output', (heads, value_inner, dim)), ('output_bias', (dim,))):
    matrix = getattr(weights, name)
    if matrix is not None and matrix.shape != wanted:
      raise ValueError(f'{name} must be {wanted} beside the others; got {matrix.shape}')


def _likeness(x_BTD):
  """Every vector's dot product with every other, [..., T, T] float32."""
  if x_BTD.ndim < 2:
    raise ValueError(f'vectors must be rows, [..., T, D]; got {x_BTD.shape}')
  check_floats('vectors', x_BTD)
  return jnp.einsum('...TD,...SD->...TS', x_BTD, x_BTD, preferred_element_type=jnp.float32)


def _averages(x_BTD, weights_BTS, return_weights):
  out = jnp.einsum('...TS,...SD->...TD', weights_BTS.astype(x_BTD.dtype), x_BTD)
  return (out, weights_BTS[..., None, :, :]) if return_weights else out
