"""Forms of self-attention, from one without parameters to the Transformer's multi-head attention.

They are for teaching and comparison, and take plain arrays. The model's own layers, in
`model/attention.py`, are `multi_head_attention` with biases and caches. With `return_weights`, each
returns a pair: its result, and the float32 weights [..., H, T, S], where H is 1 without heads.
Shapes that do not fit each other raise a ValueError.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from transformer.ops.attention import attention_with_weights, check_arrays, masked_softmax


def basic_self_attention(x_BTD, *, return_weights=False):
  """Returns softmax(X Xᵀ) X: averages of all vectors, weighted by similarity.

  Bloem, 2019, "Transformers from scratch", basic self-attention. It has no parameters.
  """
  return _weighted_averages(x_BTD, masked_softmax(_dot_products(x_BTD)), return_weights)


def self_attention_over_others(x_BTD, *, return_weights=False):
  """Returns, for each vector, the average of the other vectors, weighted by similarity.

  Some lecture notes call this vanilla self-attention: o_i = Σ_{j≠i} w_ij v_j, where w_ij is
  proportional to exp(v_i · v_j / √D). A sequence of one vector gives zeros.
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
  """MultiHead(Q, K, V) = Concat(head_1, …, head_h) Wᴼ: section 3.2.2, [..., T, D].

  head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). One product projects all heads, which equals h
  separate heads. The paper has narrow heads, K = V = D / h; any other widths are allowed. Wide
  heads keep the full width, K = V = Q (Bloem, 2019, wide self-attention, whose output projection
  alone has a bias). Without the output projection the heads are concatenated, as in some lecture
  notes.

  Args:
    mask_BTS, scale: as in `dot_product_attention`.
  """
  _, heads, inner = weights.query.shape
  value_inner = weights.value.shape[-1]
  dim = heads * value_inner if weights.output is None else weights.output.shape[-1]
  _check_matrices(weights, HeadWeights(
      (queries_BTQ.shape[-1], heads, inner), (keys_BSC.shape[-1], heads, inner),
      (values_BSE.shape[-1], heads, value_inner), (heads, value_inner, dim), (dim,)))
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

  Bahdanau et al., 2015, appendix A.1.2, without biases. Section 3.2.1 compares it with the dot
  product: in theory both cost as much, but the dot product is one product of matrices, and additive
  attention holds a hidden layer for every pair of a query and a key, [..., T, S, A].

  Args:
    mask_BTS: as in `dot_product_attention`.
  """
  hidden = weights.score.shape[-1]
  _check_matrices(weights, AdditiveWeights((q_BTK.shape[-1], hidden), (k_BSC.shape[-1], hidden),
                                           (hidden,)))
  q_BTA = jnp.einsum('...TK,KA->...TA', q_BTK, weights.query)
  k_BSA = jnp.einsum('...SC,CA->...SA', k_BSC, weights.key)
  check_arrays(*(jnp.expand_dims(array, -2) for array in (q_BTA, k_BSA, v_BSV)), mask_BTS)
  hidden_BTSA = jnp.tanh(q_BTA[..., :, None, :] + k_BSA[..., None, :, :])
  scores_BTS = jnp.einsum('...TSA,A->...TS', hidden_BTSA, weights.score,
                          preferred_element_type=jnp.float32)
  if mask_BTS is not None:
    mask_BTS = jnp.broadcast_to(mask_BTS, scores_BTS.shape)
  return _weighted_averages(v_BSV, masked_softmax(scores_BTS, mask_BTS), return_weights)


def _check_matrices(weights, shapes):
  """Raises a ValueError for matrices of other shapes, some of which einsum would broadcast."""
  for name, matrix, wanted in zip(weights._fields, weights, shapes, strict=True):
    if matrix is not None and matrix.shape != wanted:
      raise ValueError(f'{name} must be {wanted} to fit the others; got {matrix.shape}')


def _dot_products(x_BTD):
  """Returns the dot products of all pairs of vectors, float32 [..., T, S] with S = T."""
  check_arrays(*[jnp.expand_dims(x_BTD, -2)] * 3)
  return jnp.einsum('...TD,...SD->...TS', x_BTD, x_BTD, preferred_element_type=jnp.float32)


def _weighted_averages(x_BSD, weights_BTS, return_weights):
  out = jnp.einsum('...TS,...SD->...TD', weights_BTS.astype(x_BSD.dtype), x_BSD)
  return (out, weights_BTS[..., None, :, :]) if return_weights else out
