"""The dense layer matches Flax's; in 16 bits, its bias is added to the float32 product."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from transformer.model.config import ModelConfig
from transformer.model.dense import Dense

B, T = 3, 5
CONFIG = ModelConfig(model_dim=8, num_heads=2)
NARROW = ModelConfig(model_dim=8, num_heads=2, dtype='bfloat16')


@pytest.mark.parametrize('use_bias', [False, True])
@pytest.mark.parametrize(
  ('inputs', 'features'), [((7,), (11,)), ((7,), (2, 13)), ((2, 13), (7,))]
)
def test_it_has_the_parameters_and_values_of_flax(inputs, features, use_bias):
  x = jax.random.normal(jax.random.key(0), (B, T, *inputs))
  axes = tuple(range(-len(inputs), 0))
  reference = nn.DenseGeneral(
    features, axes, use_bias=use_bias, kernel_init=nn.initializers.xavier_uniform()
  )
  layer = Dense(CONFIG, features, use_bias, num_inputs=len(inputs))
  params = layer.init(jax.random.key(1), x)
  chex.assert_trees_all_equal(params, reference.init(jax.random.key(1), x))
  params = jax.tree.map(lambda leaf: leaf + 0.5, params)  # The initial biases are zero.
  chex.assert_trees_all_close(
    layer.apply(params, x), reference.apply(params, x), rtol=1e-5, atol=1e-5
  )


@pytest.mark.parametrize('features', [(1,), (1, 1)])
@pytest.mark.parametrize('round_product', [False, True])
def test_in_16_bits_the_bias_is_added_before_rounding_unless_the_product_is_rounded(
  features, round_product
):
  # In bfloat16, 1 + 2⁻⁸ is 1.
  layer = Dense(NARROW, features, use_bias=True, round_product=round_product)
  params = {
    'kernel': jnp.full((2, *features), 1.0),
    'bias': jnp.full(features, -1.0),
  }
  x = jnp.array([[1.0, 2**-8]], jnp.bfloat16)
  y = jax.jit(layer.apply)({'params': params}, x)
  assert y.dtype == jnp.bfloat16
  assert y.item() == (0.0 if round_product else 2**-8)


def test_the_gradient_of_a_16_bit_bias_is_summed_in_float32():
  layer = Dense(NARROW, (1,), use_bias=True, num_inputs=2, round_product=True)
  x = jnp.zeros((3000, 1, 1), jnp.bfloat16)
  params = layer.init(jax.random.key(0), x)
  gradient = jax.grad(lambda params: layer.apply(params, x).astype(jnp.float32).sum())
  # A sum in bfloat16 would not grow beyond 256.
  assert gradient(params)['params']['bias'].item() == 3000


def test_the_product_is_zero_where_it_is_not_kept():
  layer = Dense(CONFIG, (7,), use_bias=True)
  x = jax.random.normal(jax.random.key(0), (B, T, 11))
  params = jax.tree.map(lambda leaf: leaf + 0.5, layer.init(jax.random.key(1), x))
  keep = jnp.arange(T)[:, None] % 2 == 0
  y = layer.apply(params, x, keep[None])
  chex.assert_trees_all_equal(y[:, ::2], layer.apply(params, x)[:, ::2])
  chex.assert_trees_all_equal(y[:, 1::2], jnp.full((B, T // 2, 7), 0.5))
