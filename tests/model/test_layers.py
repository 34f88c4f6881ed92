"""Each layer equals its formula in section 3."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import B, D, F, H, K, N, S, T, V, normal, randomized
from tests.model.formulas import exact, feed_forward, layer_norm
from transformer.model.attention import NO_CONTEXT, RelativeBias
from transformer.model.config import ModelConfig
from transformer.model.layers import Embedding, FeedForward, Layer, Positions, Residual
from transformer.model.transformer import Transformer, init_params

CONFIG = ModelConfig(
  num_layers=2,
  model_dim=D,
  ff_dim=F,
  num_heads=H,
  key_dim=K,
  value_dim=V,
  max_positions=31,
  dropout=0.3,
  attention_bias='all',
)


def config(**changed):
  return dataclasses.replace(CONFIG, **changed)


@pytest.mark.parametrize('activation', ['relu', 'gelu', 'silu', 'swiglu'])
def test_activations_are_their_formulas(activation):
  module, x = FeedForward(config(activation=activation)), normal(B, T, D)
  variables = randomized(module.init(jax.random.key(0), x, deterministic=True))
  p = variables['params']
  if activation == 'swiglu':
    chex.assert_shape([p['inner']['kernel'], p['gate']['kernel']], (D, F))
    assert all(set(layer) == {'kernel'} for layer in p.values())
  chex.assert_trees_all_close(
    module.apply(variables, x, deterministic=True),
    np.float32(feed_forward(module.config, *exact((p, x)))),
    rtol=1e-4,
    atol=1e-5,
  )


def initialized_and_applied(module, call, *given):
  """Returns random variables of a module, and its output with them."""
  init = jax.jit(lambda *given: module.init(jax.random.key(0), *given, method=call))
  variables = randomized(init(*given))
  return variables, jax.jit(
    lambda *given: module.apply(variables, *given, method=call)
  )(*given)


def test_kernels_have_glorot_scale_and_biases_are_zero():
  module, x = Layer(CONFIG), normal(B, S, D)
  p = jax.jit(
    lambda: module.init(jax.random.key(0), x, NO_CONTEXT, deterministic=True)
  )()['params']
  for sublayer, name, fans in (
    ('self_attention', 'query', D + H * K),
    ('self_attention', 'key', D + H * K),
    ('self_attention', 'value', D + H * V),
    ('self_attention', 'output', H * V + D),
    ('feed_forward', 'inner', D + F),
    ('feed_forward', 'outer', F + D),
  ):
    bound = (6 / fans) ** 0.5
    assert 0.9 * bound < np.max(np.abs(p[sublayer][name]['kernel'])) <= bound
    assert not np.any(p[sublayer][name]['bias'])


def test_other_tables_have_the_init_scale_of_embeddings():
  positions, learned = jnp.arange(T), config(positions='learned')
  model = Transformer(config(num_layers=1, tie_output=False), N)
  tables = {
    'positions': Positions(learned).init(jax.random.key(0), positions, T)['params'][
      'table'
    ],
    'bias': RelativeBias(config(positions='relative'), True).init(
      jax.random.key(0), positions, positions
    )['params']['table'],
    'output': jax.jit(lambda: init_params(model, 0)['output'])(),
  }
  for name, table in tables.items():
    assert 0.7 < np.std(table) * D**0.5 < 1.3, name


def test_rms_norm_divides_by_the_root_mean_square_and_subtracts_nothing():
  module, x = Residual(config(rms_norm=True)), 2.0 + normal(B, T, D)
  variables, found = initialized_and_applied(
    module, lambda residual, x: residual(x, lambda h: 2.0 * h, deterministic=True), x
  )
  p = variables['params']['layer_norm']
  assert set(p) == {'scale'}
  chex.assert_trees_all_close(
    found, np.float32(layer_norm(*exact((3.0 * x, p)))), rtol=1e-4, atol=1e-5
  )


NOISY = {'deterministic': False, 'rngs': {'dropout': jax.random.key(1)}}


def check_dropped(noisy, calm):
  """Checks that dropout was the last that happened: each element is zero, or scaled."""
  dropped = np.isclose(noisy, 0.0, atol=1e-5)
  assert 0.2 < dropped.mean() < 0.4
  np.testing.assert_allclose(
    noisy, np.where(dropped, 0.0, calm / (1 - CONFIG.dropout)), rtol=1e-4, atol=1e-5
  )


def test_dropout_is_of_what_a_sublayer_adds_and_of_embeddings_with_their_positions():
  module, x = Residual(config(norm_position='pre')), normal(B, T, D)
  variables = module.init(jax.random.key(0), x, jnp.ones_like, deterministic=True)
  check_dropped(
    module.apply(variables, x, jnp.ones_like, **NOISY) - x, jnp.ones_like(x)
  )
  module = Residual(config(norm_position='post'))
  np.testing.assert_array_equal(
    *(
      module.apply(variables, x, jnp.zeros_like, **more)
      for more in (NOISY, {'deterministic': True})
    )
  )

  module, given = Embedding(CONFIG, N), (jnp.arange(B * T).reshape(B, T) % N, 5.0 + x)
  variables = module.init(jax.random.key(0), *given, deterministic=True)
  check_dropped(
    module.apply(variables, *given, **NOISY),
    module.apply(variables, *given, deterministic=True),
  )


def test_activation_dropout_is_of_what_the_last_matrix_multiplies():
  module = FeedForward(
    config(activation='swiglu', ff_dim=D, activation_dropout=CONFIG.dropout)
  )
  x = normal(B, T, D)
  variables = module.init(jax.random.key(0), x, deterministic=True)
  variables['params']['outer']['kernel'] = jnp.eye(D)
  check_dropped(
    module.apply(variables, x, **NOISY), module.apply(variables, x, deterministic=True)
  )


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_embeddings_are_scaled_by_the_root_of_the_width_before_positions_are_added(
  dtype,
):
  module = Embedding(config(dtype=dtype), N)
  tokens, positions = jnp.asarray([[3, 5, 3], [36, 0, 7]]), normal(B, 3, D)
  variables = module.init(jax.random.key(0), tokens, positions, deterministic=True)
  table = variables['params']['table']
  chex.assert_shape(table, (N, D))
  assert table.dtype == jnp.float32
  assert 0.8 < np.std(table) * D**0.5 < 1.2
  out = module.apply(variables, tokens, positions, deterministic=True)
  assert out.dtype == jnp.dtype(dtype)
  chex.assert_trees_all_close(
    out.astype(jnp.float32),
    table[tokens] * D**0.5 + positions,
    rtol=1e-6 if dtype == 'float32' else 0.01,
    atol=0.03,
  )
