"""Attention is equation 1 of the paper, with any mask and under any transformation of JAX."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.attention_arrays import (
  EMPTY,
  LEADING,
  H,
  K,
  S,
  T,
  V,
  arrays,
  numpy_attention,
)
from transformer.ops.attention import (
  attention_with_weights,
  cached_attention,
  dot_product_attention,
  masked_softmax,
)
from transformer.ops.fused_attention import fused_attention
from transformer.ops.masks import combine_masks
from transformer.testing.tolerance import rounding_tolerance

jitted = jax.jit(attention_with_weights)


@pytest.mark.parametrize('leading', LEADING)
@pytest.mark.parametrize('masked', [True, False])
def test_it_equals_equation_1_in_float64(leading, masked):
  q, k, v, mask = arrays(leading)
  given = (q, k, v, mask if masked else None)
  chex.assert_trees_all_close(
    jitted(*given), numpy_attention(*given), rtol=1e-5, atol=1e-6
  )


def test_eager_jit_vmap_and_pmap_agree():
  given = arrays((3,))
  eager = attention_with_weights(*given)
  for lift in (jax.jit, jax.vmap, jax.pmap):
    lifted = lift(attention_with_weights)
    chex.assert_trees_all_close(lifted(*given), eager, rtol=1e-5, atol=1e-6)
  given = arrays((2, 3))
  twice = jax.vmap(jax.vmap(attention_with_weights))(*given)
  chex.assert_trees_all_close(
    twice, attention_with_weights(*given), rtol=1e-5, atol=1e-6
  )


def test_permuting_queries_permutes_rows_and_permuting_keys_with_their_values_changes_nothing():
  q, k, v, mask = arrays()
  order, among = np.array([3, 0, 4, 1, 2]), np.array([6, 2, 0, 5, 1, 4, 3])
  out, weights = jitted(q, k, v, mask)
  chex.assert_trees_all_close(
    jitted(q[:, order], k, v, mask[:, order]),
    (out[:, order], weights[:, :, order]),
    rtol=1e-6,
  )
  chex.assert_trees_all_close(
    jitted(q, k[:, among], v[:, among], mask[..., among]),
    (out, weights[..., among]),
    rtol=1e-5,
    atol=1e-6,
  )
  self_attention = jax.jit(lambda x: dot_product_attention(x, x, x))
  chex.assert_trees_all_close(
    self_attention(k[:, among]), self_attention(k)[:, among], rtol=1e-5, atol=1e-6
  )


@pytest.mark.parametrize(('dtype', 'scale'), [('float32', 1e3), ('bfloat16', 1.0)])
def test_a_query_that_may_attend_to_nothing_gets_zeros_and_zero_gradients(dtype, scale):
  q, k, v, mask = arrays(dtype=dtype)
  q = q * jnp.asarray(scale, dtype)

  @jax.jit
  def run(mask):
    def total(q, k, v):
      out = dot_product_attention(q, k, v, mask)
      return jnp.sum((out.astype(jnp.float32) + 1.0) ** 2), out

    return jax.grad(total, (0, 1, 2), has_aux=True)(q, k, v)

  gradients, out = run(mask)
  chex.assert_tree_all_finite((gradients, out))
  assert not np.any(out[:, EMPTY]) and not np.any(gradients[0][:, EMPTY])
  others = np.delete(np.asarray(out, np.float32), EMPTY, axis=1)
  assert np.all(np.any(others, axis=(-1, -2)))
  nothing = run(jnp.zeros_like(mask))
  chex.assert_trees_all_equal(nothing, jax.tree.map(jnp.zeros_like, nothing))


def test_masked_keys_have_no_influence_and_no_gradient():
  q, k, v, mask = arrays()
  column = 4
  mask = mask.at[..., column].set(False)
  changed = jitted(q, k.at[:, column].set(1e4), v.at[:, column].set(-1e4), mask)
  chex.assert_trees_all_equal(changed, jitted(q, k, v, mask))
  gradients = jax.grad(
    lambda k, v: jnp.sum(dot_product_attention(q, k, v, mask) ** 2), (0, 1)
  )(k, v)
  for gradient in gradients:
    assert not np.any(gradient[:, column])
    assert np.any(np.delete(gradient, column, axis=1))


def test_a_mask_broadcasts_against_leading_axes_queries_and_keys():
  q, k, v, _ = arrays((2, 3))
  for shape in ((T, S), (1, S), (T, 1), (1, T, S), (3, 1, S), (2, 1, T, 1)):
    mask = np.random.default_rng(1).random(shape) < 0.6
    chex.assert_trees_all_close(
      jitted(q, k, v, jnp.asarray(mask)),
      numpy_attention(q, k, v, mask),
      rtol=1e-5,
      atol=1e-6,
    )


def test_the_softmax_of_16_bit_inputs_is_made_in_float32():
  q, k, v, mask = arrays(dtype=jnp.bfloat16)
  out, weights = attention_with_weights(q, k, v, mask)
  assert (out.dtype, weights.dtype) == (jnp.bfloat16, jnp.float32)
  scaled_q = np.asarray(q * jnp.bfloat16(K**-0.5), np.float64) * K**0.5
  wanted_out, wanted = numpy_attention(scaled_q, k, v, mask)
  chex.assert_trees_all_close(weights, wanted.astype(np.float32), atol=1e-6)
  # With float32 values in the cache, nothing but the weights could be rounded.
  keys, values = jnp.moveaxis(k, 1, -1), jnp.swapaxes(v, 1, 2)
  out = cached_attention(q, keys, values.astype(jnp.float32), mask)
  chex.assert_trees_all_close(out, wanted_out.astype(np.float32), atol=1e-6)
  assert cached_attention(q, keys, values, mask).dtype == jnp.bfloat16


def test_every_product_of_16_bit_inputs_has_factors_of_16_bits():
  q, k, v, mask = arrays(dtype=jnp.bfloat16)
  wanted, plain = (
    jax.grad(
      lambda q, k, v, cast=cast: jnp.sum(
        jnp.cos(
          dot_product_attention(*(x.astype(cast) for x in (q, k, v)), mask).astype(
            jnp.float32
          )
        )
      ),
      (0, 1, 2),
    )
    for cast in (jnp.float32, jnp.bfloat16)
  )
  text = jax.jit(plain).lower(q, k, v).as_text()
  products = re.findall(r'dot_general.*: \((.*)\) ->', text)
  assert len(products) == 6 and not any(
    'f32' in item.replace('bf16', '') for item in products
  )
  chex.assert_trees_all_close(
    *(
      jax.tree.map(lambda x: x.astype(jnp.float32), gradient(q, k, v))
      for gradient in (plain, wanted)
    ),
    rtol=0.05,
    atol=rounding_tolerance(3, 1.0, jnp.bfloat16),
  )


def test_masked_softmax_is_the_softmax_of_the_allowed_positions():
  scores = jnp.asarray(np.random.default_rng(2).normal(size=(T, S)) * 50, jnp.float32)
  plain = jax.nn.softmax(scores, axis=-1)
  chex.assert_trees_all_close(masked_softmax(scores), plain, atol=1e-6)
  chex.assert_trees_all_close(
    masked_softmax(scores, jnp.ones((T, S), bool)), plain, atol=1e-6
  )
  mask = jnp.arange(S)[None] < 3
  some = masked_softmax(scores, mask)
  chex.assert_trees_all_close(
    some[:, :3], jax.nn.softmax(scores[:, :3], axis=-1), atol=1e-6
  )
  assert not np.any(some[:, 3:])
  extreme = jnp.asarray([[-1e38, 1e38, 3e38]], jnp.float32)
  chex.assert_trees_all_close(
    masked_softmax(extreme, jnp.asarray([[True, False, False]])),
    np.float32([[1, 0, 0]]),
  )
  short = scores.astype(jnp.bfloat16)
  for allowed in (None, mask):
    chex.assert_trees_all_equal(
      masked_softmax(short, allowed), masked_softmax(short.astype(jnp.float32), allowed)
    )


def from_cache(q, k, v, *more):
  """Calls `cached_attention` with the arguments of the other functions."""
  return cached_attention(q, jnp.moveaxis(k, -3, -1), jnp.swapaxes(v, -3, -2), *more)


@pytest.mark.parametrize(
  'attend', [dot_product_attention, attention_with_weights, fused_attention]
)
@pytest.mark.parametrize(
  'changed',
  [
    {'q': (2, T, H, K)},
    {'v': (S, H, V)},
    {'k': (3, S, 1, K)},
    {'k': (3, S, H, 1)},
    {'v': (3, 1, H, V)},
    {'mask': (3, S, T)},
    {'mask': (1, 3, T, S)},
    {'bias': (H, S, T)},
    {'bias': (1, 3, H, T, S)},
  ],
  ids=str,
)
def test_shapes_that_do_not_fit_are_rejected(attend, changed):
  shapes = {
    'q': (3, T, H, K),
    'k': (3, S, H, K),
    'v': (3, S, H, V),
    'mask': (3, T, S),
    'bias': (H, T, S),
  } | changed
  q, k, v, bias = (jnp.zeros(shapes[name]) for name in ('q', 'k', 'v', 'bias'))
  ((_, shape),) = changed.items()
  with pytest.raises(ValueError) as error:
    attend(q, k, v, jnp.ones(shapes['mask'], bool), bias)
  assert ','.join(map(str, shape)) in str(error.value).replace(' ', '')


@pytest.mark.parametrize('place', range(3))
def test_integers_are_rejected(place):
  given = [*arrays()]
  given[place] = given[place].astype(jnp.int32)
  with pytest.raises(ValueError, match=r'must be floats .*got .*int32'):
    dot_product_attention(*given)


def test_masks_of_numbers_are_rejected():
  numbers = jnp.full((T, S), -jnp.inf)
  q, k, v, _ = arrays()
  for attend in (dot_product_attention, from_cache):
    with pytest.raises(ValueError, match=r'must be boolean.*got float32'):
      attend(q, k, v, numbers)
  with pytest.raises(TypeError):
    combine_masks(jnp.ones((T, S), bool), numbers)


@pytest.mark.parametrize('attend', [dot_product_attention, from_cache])
def test_no_queries_or_rows_give_nothing(attend):
  q, k, v, mask = arrays()
  assert attend(q[:0], k[:0], v[:0], mask[:0]).shape == (0, T, H, V)
  assert attend(q[:, :0], k, v, mask[:, :0]).shape == (3, 0, H, V)
