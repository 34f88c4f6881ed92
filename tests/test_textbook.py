"""Each form of self-attention equals its formula and permutes with its input; shifts rotate."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.textbook import (
  HeadWeights,
  basic_self_attention,
  multi_head_attention,
  self_attention_over_others,
  sinusoidal_shift,
)
from transformer.ops.attention import attention_with_weights
from transformer.ops.positions import sinusoidal_positions

B, T, S, H, K, V, D, Q, C, E = 2, 5, 7, 3, 11, 13, 17, 19, 23, 29


def normal(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def head_weights(q=Q, c=C, e=E, k=K, v=V, d=D):
  return HeadWeights(
    normal(q, H, k, seed=1),
    normal(c, H, k, seed=2),
    normal(e, H, v, seed=3),
    normal(H, v, d, seed=4),
    normal(d, seed=5),
  )


def softmax(scores):
  exponentials = np.exp(scores - scores.max(-1, keepdims=True))
  return exponentials / exponentials.sum(-1, keepdims=True)


def wide(x, **options):
  return multi_head_attention(x, x, x, head_weights(D, D, D, D, D, D), **options)


def narrow(x, **options):
  return multi_head_attention(x, x, x, head_weights(D, D, D), **options)


PIECES = [basic_self_attention, self_attention_over_others, narrow, wide]
pieces = pytest.mark.parametrize(
  'piece', PIECES, ids=['basic', 'others', 'narrow', 'wide']
)


def test_attention_without_parameters_is_its_formula_with_or_without_a_vector_itself():
  x = normal(B, T, D)
  scores = np.asarray(x, np.float64) @ np.asarray(x, np.float64).swapaxes(-1, -2)
  out, weights = basic_self_attention(x, return_weights=True)
  chex.assert_trees_all_close(
    weights, np.float32(softmax(scores))[:, None], rtol=1e-4, atol=1e-6
  )
  chex.assert_trees_all_close(
    out, np.float32(softmax(scores) @ np.asarray(x)), rtol=1e-4, atol=1e-5
  )
  attend = jax.jit(self_attention_over_others, static_argnames='return_weights')
  out, weights = attend(x, return_weights=True)
  x, out, weights = np.asarray(x), np.asarray(out), np.asarray(weights)
  for b, i in np.ndindex(B, T):
    others = [j for j in range(T) if j != i]
    w = softmax(np.array([x[b, i] @ x[b, j] / np.sqrt(D) for j in others]))
    np.testing.assert_allclose(weights[b, 0, i, others], w, rtol=1e-4)
    np.testing.assert_allclose(out[b, i], w @ x[b, others], rtol=1e-4, atol=1e-5)
    assert weights[b, 0, i, i] == 0.0
  gradient = jax.jit(jax.grad(lambda x: jnp.sum(self_attention_over_others(x) ** 2)))
  alone = normal(B, 1, D)
  assert not np.any(attend(alone))
  assert not np.any(gradient(alone))


def test_one_product_and_a_split_are_separate_heads():
  queries, keys, values = (
    normal(B, T, Q),
    normal(B, S, C, seed=6),
    normal(B, S, E, seed=7),
  )
  mask = (
    jnp.asarray(np.random.default_rng(8).random((B, T, S)) < 0.6).at[..., 0].set(True)
  )
  w = head_weights()
  heads, weights = zip(
    *(
      attention_with_weights(
        (queries @ w.query[:, h])[..., None, :],
        (keys @ w.key[:, h])[..., None, :],
        (values @ w.value[:, h])[..., None, :],
        mask,
      )
      for h in range(H)
    ),
    strict=True,
  )
  side_by_side = jnp.concatenate([head[..., 0, :] for head in heads], axis=-1)
  out, result = multi_head_attention(
    queries, keys, values, w, mask, return_weights=True
  )
  chex.assert_trees_all_close(
    result, jnp.concatenate(weights, axis=1), rtol=1e-4, atol=1e-5
  )
  joined = side_by_side @ w.output.reshape(H * V, D)
  chex.assert_trees_all_close(
    out, joined + jnp.broadcast_to(w.output_bias, joined.shape), rtol=1e-3, atol=1e-3
  )
  bare = multi_head_attention(
    queries, keys, values, w._replace(output=None, output_bias=None), mask
  )
  chex.assert_trees_all_close(bare, side_by_side, rtol=1e-4, atol=1e-4)


@pytest.mark.long(but=('basic', 'others'))
@pieces
def test_the_input_may_be_permuted_and_eager_jit_vmap_and_pmap_agree(piece):
  x, order = normal(B, T, D), np.array([3, 0, 4, 1, 2])
  out, weights = piece(x, return_weights=True)
  moved, moved_weights = piece(x[:, order], return_weights=True)
  chex.assert_trees_all_close(moved, out[:, order], rtol=1e-4, atol=1e-3)
  chex.assert_trees_all_close(
    moved_weights, weights[:, :, order][..., order], rtol=1e-4, atol=1e-5
  )
  for lifted in (jax.jit(piece), jax.vmap(piece), jax.pmap(piece)):
    chex.assert_trees_all_close(lifted(x), out, rtol=1e-4, atol=1e-3)
  chex.assert_trees_all_close(piece(x[None]), out[None], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize('piece', [basic_self_attention, self_attention_over_others])
def test_scores_of_16_bit_vectors_are_float32(piece):
  # Nearly equal vectors, so that the rounding of a 16-bit product would show.
  x = (normal(1, D) * 8 + normal(T, D, seed=1) / 4).astype(jnp.bfloat16)
  _, wanted = piece(x.astype(jnp.float32), return_weights=True)
  out, weights = jax.jit(piece, static_argnames='return_weights')(
    x, return_weights=True
  )
  assert out.dtype == jnp.bfloat16
  chex.assert_trees_all_close(weights, wanted, atol=1e-3)
  large = jnp.full((2, 4), 200, jnp.float16)  # float16 cannot hold the product.
  chex.assert_trees_all_equal(piece(large), large)


@pytest.mark.parametrize('piece', [basic_self_attention, self_attention_over_others])
def test_vectors_must_be_rows_of_floats(piece):
  for x in (jnp.zeros(D), jnp.zeros((T, 0)), jnp.eye(2, dtype=int)):
    with pytest.raises(ValueError, match=r'must be floats .*got'):
      piece(x)


@pytest.mark.parametrize(
  'changed, message',
  [
    (
      {'query': normal(1, H, K)},
      rf'query must be \({Q}, {H}, {K}\) .*; got \(1, {H}, {K}\)',
    ),
    ({'key': normal(C, 1, K)}, rf'key must be \({C}, {H}, {K}\)'),
    ({'value': normal(1, H, V)}, rf'value must be \({E}, {H}, {V}\)'),
    ({'output': normal(1, V, D)}, rf'output must be \({H}, {V}, {D}\)'),
    ({'output_bias': normal(1)}, rf'output_bias must be \({D},\)'),
    ({'output': None}, rf'output_bias must be \({H * V},\) .*; got \({D},\)'),
  ],
)
def test_matrices_that_do_not_fit_are_rejected(changed, message):
  with pytest.raises(ValueError, match=message):
    multi_head_attention(
      normal(B, T, Q),
      normal(B, S, C),
      normal(B, S, E),
      head_weights()._replace(**changed),
    )


LENGTH, EVEN, ODD = 29, 14, 11


@pytest.mark.parametrize('shift', [0, 1, 5, 13, -2])
def test_a_shift_is_one_linear_map_the_same_for_all_positions(shift):
  table = sinusoidal_positions(LENGTH, EVEN).astype(np.float64)
  matrix = sinusoidal_shift(shift, EVEN)
  first = max(-shift, 0)
  moved = table[first + shift : LENGTH + shift][: LENGTH - abs(shift)]
  chex.assert_trees_all_close(moved, table[first:][: len(moved)] @ matrix.T, atol=5e-7)
  chex.assert_trees_all_close(matrix @ matrix.T, np.eye(EVEN), atol=1e-12)
  chex.assert_trees_all_close(
    matrix @ sinusoidal_shift(3, EVEN), sinusoidal_shift(shift + 3, EVEN), atol=1e-12
  )


def test_a_shift_is_the_same_under_jit_vmap_and_pmap():
  shift, offsets = (
    functools.partial(sinusoidal_shift, dim=EVEN),
    np.array([-2.0, 0.5, 13.0]),
  )
  wanted = np.stack([shift(offset) for offset in offsets]).astype(np.float32)
  for lifted in (jax.jit(jax.vmap(shift)), jax.pmap(shift)):
    chex.assert_trees_all_close(lifted(jnp.asarray(offsets)), wanted, atol=1e-5)


def test_a_shift_needs_pairs_of_dims():
  with pytest.raises(ValueError, match=f'got a width of {ODD}$'):
    sinusoidal_shift(1, ODD)
