"""Forms of self-attention, from one without parameters to the Transformer's multi-head attention.

They are for teaching and comparison, and take plain arrays. The model's own layers, in
`model/attention.py`, are `multi_head_attention` with biases and caches.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from transformer.ops.attention import (
  attention_with_weights,
  check_floats,
  check_one_head,
  masked_softmax,
)


def basic_self_attention(x_BTD, *, return_weights=False):
  """Returns softmax(X Xᵀ) X: averages of all vectors, weighted by similarity.

  Bloem, 2019, "Transformers from scratch", basic self-attention. It has no parameters.

  Returns:
    [..., T, D]. With `return_weights` a pair of it and the float32 weights of one head,
    [..., 1, T, S], with S = T.

  Raises:
    ValueError: `x_BTD` has fewer than two axes or no columns, or is not of a float type.
  """
  return _weighted_averages(x_BTD, masked_softmax(_dot_products(x_BTD)), return_weights)


def self_attention_over_others(x_BTD, *, return_weights=False):
  """Returns, for each vector, the average of the other vectors, weighted by similarity.

  Some lecture notes call this vanilla self-attention: o_i = Σ_{j≠i} w_ij v_j, where w_ij is
  proportional to exp(v_i · v_j / √D). A sequence of one vector gives zeros.

  Returns:
    As `basic_self_attention`; the diagonal of the weights is zero.

  Raises:
    ValueError: as `basic_self_attention`.
  """
  scores = _dot_products(x_BTD)
  length, dim = x_BTD.shape[-2:]
  others = ~jnp.eye(length, dtype=bool)
  return _weighted_averages(x_BTD, masked_softmax(scores / dim ** 0.5, others), return_weights)


class HeadWeights(NamedTuple):
  """The matrices of multi-head attention.

  Attributes:
    query: [Q, H, K], from queries of width Q.
    key: [C, H, K], from keys of width C.
    value: [E, H, V], from values of width E.
    output: [H, V, D], from all heads to width D; None concatenates the heads, and
      D = H · V.
    output_bias: [D], or None.
  """

  query: Any
  key: Any
  value: Any
  output: Any = None
  output_bias: Any = None


def multi_head_attention(queries_BTQ, keys_BSC, values_BSE, weights: HeadWeights, mask_BTS=None, *,
                         scale=None, return_weights=False):
  """MultiHead(Q, K, V) = Concat(head_1, …, head_h) Wᴼ: section 3.2.2.

  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). One product projects all heads, which equals h
  separate heads. The paper has narrow heads, K = V = D / h; any other widths are allowed.
  Without the output projection the heads are concatenated, as in some lecture notes.

  Args:
    queries_BTQ, keys_BSC, values_BSE: what is projected; B stands for any leading axes.
    mask_BTS, scale: as in `dot_product_attention`.

  Returns:
    [..., T, D], or [..., T, H · V] without an output projection. With `return_weights` a pair
    of it and the float32 weights [..., H, T, S].

  Raises:
    ValueError: a matrix does not fit the others or its input, or the inputs do not fit each
      other.
  """
  _check_matrices(queries_BTQ.shape[-1], keys_BSC.shape[-1], values_BSE.shape[-1], weights)
  out_BTHV, weights_BHTS = attention_with_weights(
      jnp.einsum('...TQ,QHK->...THK', queries_BTQ, weights.query),
      jnp.einsum('...SC,CHK->...SHK', keys_BSC, weights.key),
      jnp.einsum('...SE,EHV->...SHV', values_BSE, weights.value), mask_BTS, scale=scale)
  if weights.output is None:
    out = out_BTHV.reshape(*out_BTHV.shape[:-2], -1)
  else:
    out = jnp.einsum('...THV,HVD->...TD', out_BTHV, weights.output)
  if weights.output_bias is not None:
    out += jnp.broadcast_to(weights.output_bias, out.shape)
  return (out, weights_BHTS) if return_weights else out


def wide_multi_head_attention(x_BTK, weights: HeadWeights, mask_BTS=None, *, scale=None,
                              return_weights=False):
  """Multi-head self-attention in which every head keeps the full width k.

  Bloem, 2019, "Transformers from scratch", wide self-attention. The output projection alone has a
  bias. Bloem divides queries and keys by k^¼ each, which equals dividing their product by √k.

  Args:
    weights: query, key and value [K, H, K], output [H, K, K], output_bias [K].
    mask_BTS, scale: as in `dot_product_attention`, with S = T.

  Returns:
    [..., T, K]. With `return_weights` a pair of it and the float32 weights [..., H, T, S].

  Raises:
    ValueError: a head or the output has another width than the input, the output projection
      or its bias is missing, or matrices do not fit each other.
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
  return multi_head_attention(x_BTK, x_BTK, x_BTK, weights, mask_BTS, scale=scale,
                              return_weights=return_weights)


class AdditiveWeights(NamedTuple):
  """The parameters of additive attention.

  Attributes:
    query: [K, A], from queries to the hidden layer of width A.
    key: [C, A], from keys to the hidden layer.
    score: [A], from the hidden layer to the score.
  """

  query: Any
  key: Any
  score: Any


def additive_attention(q_BTK, k_BSC, v_BSV, weights: AdditiveWeights, mask_BTS=None, *,
                       return_weights=False):
  """Averages of the values, weighted by softmax(vᵀ tanh(W q + U k)): additive attention.

  Bahdanau et al., 2015, appendix A.1.2. Section 3.2.1 compares it with the dot product: in theory
  both cost as much, but the dot product is one product of matrices, and additive attention holds
  a hidden layer for every pair of a query and a key, [..., T, S, A].

  Args:
    q_BTK, k_BSC, v_BSV: B stands for any leading axes, the same in all arguments.
    weights: W, U and v; the published ones have no biases.
    mask_BTS: as in `dot_product_attention`.

  Returns:
    [..., T, V]. With `return_weights` a pair of it and the float32 weights of one head,
    [..., 1, T, S].

  Raises:
    ValueError: a matrix does not fit the others or its input; or as `dot_product_attention`.
  """
  hidden = weights.score.shape[-1]
  for name, matrix, wanted in (('query', weights.query, (q_BTK.shape[-1], hidden)),
                               ('key', weights.key, (k_BSC.shape[-1], hidden)),
                               ('score', weights.score, (hidden,))):
    if matrix.shape != wanted:
      raise ValueError(f'{name} must be {wanted} to fit the others; got {matrix.shape}')
  q_BTA = jnp.einsum('...TK,KA->...TA', q_BTK, weights.query)
  k_BSA = jnp.einsum('...SC,CA->...SA', k_BSC, weights.key)
  check_one_head(q_BTA, k_BSA, v_BSV, mask_BTS)
  hidden_BTSA = jnp.tanh(q_BTA[..., :, None, :] + k_BSA[..., None, :, :])
  scores_BTS = jnp.einsum('...TSA,A->...TS', hidden_BTSA, weights.score,
                          preferred_element_type=jnp.float32)
  if mask_BTS is not None:
    mask_BTS = jnp.broadcast_to(mask_BTS, scores_BTS.shape)
  return _weighted_averages(v_BSV, masked_softmax(scores_BTS, mask_BTS), return_weights)


def _check_matrices(query_dim, key_dim, value_dim, weights):
  """Raises a ValueError for wrong shapes, some of which einsum would broadcast."""
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
      raise ValueError(f'{name} must be {wanted} to fit the others; got {matrix.shape}')


def _dot_products(x_BTD):
  """Returns the dot products of all pairs of vectors, float32 [..., T, S] with S = T."""
  if x_BTD.ndim < 2 or not x_BTD.shape[-1]:
    raise ValueError(f'vectors must be rows, [..., T, D] with D ≥ 1; got {x_BTD.shape}')
  check_floats('vectors', x_BTD)
  return jnp.einsum('...TD,...SD->...TS', x_BTD, x_BTD, preferred_element_type=jnp.float32)


def _weighted_averages(x_BSD, weights_BTS, return_weights):
  out = jnp.einsum('...TS,...SD->...TD', weights_BTS.astype(x_BSD.dtype), x_BSD)
  return (out, weights_BTS[..., None, :, :]) if return_weights else out
