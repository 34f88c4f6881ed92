"""Each layer equals its formula in section 3."""

import dataclasses
import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import normal, randomised
from tests.model.formulas import block
from transformer.model import layers
from transformer.model.attention import Placement, RelativeBias
from transformer.model.config import ModelConfig
from transformer.model.layers import (
  DecoderLayer,
  Dropout,
  Embedding,
  EncoderLayer,
  FeedForward,
  Positions,
  Residual,
)
from transformer.model.transformer import Transformer
from transformer.ops.positions import sinusoidal_positions
from transformer.training.step import init_params

B, H, W, K, V, D, F, S, T, N = 2, 3, 5, 7, 11, 13, 17, 19, 23, 37
CONFIG = ModelConfig(num_layers=2, model_dim=D, ff_dim=F, num_heads=H, key_dim=K, value_dim=V,
                     max_positions=31, dropout=0.3, attention_bias='all')


def config(**changed):
  return dataclasses.replace(CONFIG, **changed)


def test_the_feed_forward_sublayer_is_two_convolutions_with_kernel_size_1():
  module, x = FeedForward(config()), normal(B, T, D)
  variables = randomised(module.init(jax.random.key(0), x, deterministic=True))
  params = variables['params']

  def convolution(x_BTD, layer):
    out = jax.lax.conv_general_dilated(x_BTD, params[layer]['kernel'][None], (1,), 'VALID',
                                       dimension_numbers=('NWC', 'WIO', 'NWC'))
    return out + params[layer]['bias'][None, None]

  expected = convolution(jnp.maximum(convolution(x, 'inner'), 0.0), 'outer')
  chex.assert_trees_all_close(module.apply(variables, x, deterministic=True), expected, atol=1e-5)


@pytest.mark.parametrize('activation', ['gelu', 'silu', 'swiglu'])
def test_other_activations_are_their_formulas(activation):
  module, x = FeedForward(config(activation=activation)), normal(B, T, D)
  variables = randomised(module.init(jax.random.key(0), x, deterministic=True))
  p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables['params'])
  x64 = np.asarray(x, np.float64)
  if activation == 'gelu':
    inner = x64 @ p['inner']['kernel'] + p['inner']['bias']
    inner *= (1 + np.vectorize(math.erf)(inner / np.sqrt(2))) / 2
    wanted = inner @ p['outer']['kernel'] + p['outer']['bias']
  elif activation == 'silu':
    inner = x64 @ p['inner']['kernel'] + p['inner']['bias']
    wanted = inner / (1 + np.exp(-inner)) @ p['outer']['kernel'] + p['outer']['bias']
  else:
    chex.assert_shape([p['inner']['kernel'], p['gate']['kernel']], (D, F))
    assert all(set(each) == {'kernel'} for each in p.values())
    inner = x64 @ p['inner']['kernel']
    wanted = (inner / (1 + np.exp(-inner)) * (x64 @ p['gate']['kernel'])) @ p['outer']['kernel']
  found = module.apply(variables, x, deterministic=True)
  chex.assert_trees_all_close(found, np.float32(wanted), rtol=1e-4, atol=1e-5)


class Join(nn.Module):
  """A residual connection around a sublayer that doubles its input."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x, factor=2.0):
    return Residual(self.config)(x, lambda h: factor * h, deterministic=True)


def some_of(*shape):
  """Returns a random mask in which every query may attend to at least one key."""
  return (np.random.default_rng(2).random(shape) < 0.5) | (np.arange(shape[-1]) == 0)


def minus_infinity_off(mask_BTS):
  return np.where(mask_BTS, 0.0, -np.inf)[:, None]


def initialised_and_applied(module, call, *given):
  """Returns random variables of a module, and its output with them."""
  init = jax.jit(lambda *given: module.init(jax.random.key(0), *given, method=call))
  variables = randomised(init(*given))
  return variables, jax.jit(lambda *given: module.apply(variables, *given, method=call))(*given)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_a_block_is_attention_then_feed_forward_each_with_residual_and_norm(norm):
  module, x = EncoderLayer(config(norm=norm)), normal(B, S, D)
  mask = some_of(B, S, S)
  variables, found = initialised_and_applied(module, lambda layer, x: layer(
      x, mask, Placement(jnp.arange(S), None), deterministic=True), x)
  wanted = block(module.config, variables['params'], x, bias=minus_infinity_off(mask))
  chex.assert_trees_all_close(found, np.float32(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_a_decoder_block_attends_to_itself_then_to_the_source_then_feeds_forward(norm):
  module, x, memory = DecoderLayer(config(norm=norm)), normal(B, T, D), normal(B, S, D, seed=1)
  own, other = some_of(B, T, T), some_of(B, T, S)
  variables, found = initialised_and_applied(module, lambda layer, x, memory: layer(
      x, own, Placement(jnp.arange(T), None), layer.cross_attention.keys_values(memory), other,
      deterministic=True), x, memory)
  wanted = block(module.config, variables['params'], x, memory, bias=minus_infinity_off(own),
                 memory_bias=minus_infinity_off(other))
  chex.assert_trees_all_close(found, np.float32(wanted), rtol=1e-4, atol=1e-4)


def test_kernels_start_as_wide_as_glorot_and_biases_at_zero():
  module, x = EncoderLayer(CONFIG), normal(B, S, D)
  p = jax.jit(lambda: module.init(jax.random.key(0), x, None, Placement(jnp.arange(S), None),
                                  deterministic=True))()['params']
  for sublayer, name, fans in (
      ('self_attention', 'query', D + H * K), ('self_attention', 'key', D + H * K),
      ('self_attention', 'value', D + H * V), ('self_attention', 'output', H * V + D),
      ('feed_forward', 'inner', D + F), ('feed_forward', 'outer', F + D)):
    bound = (6 / fans) ** 0.5
    assert 0.9 * bound < np.max(np.abs(p[sublayer][name]['kernel'])) <= bound
    assert not np.any(p[sublayer][name]['bias'])


def test_other_tables_start_as_wide_as_embeddings():
  positions, learned = jnp.arange(T), config(positions='learned')
  model = Transformer(config(num_layers=1, tie_output=False), N)
  tables = {
      'positions': Positions(learned).init(jax.random.key(0), positions, T)['params']['table'],
      'bias': RelativeBias(CONFIG, True).init(jax.random.key(0), positions, positions)['params'][
          'table'],
      'output': jax.jit(lambda: init_params(model, 0)['output'])()}
  for name, table in tables.items():
    assert 0.7 < np.std(table) * D ** 0.5 < 1.3, name


def test_rms_norm_divides_by_the_root_mean_square_and_subtracts_nothing():
  module, x = Join(config(rms_norm=True)), 2.0 + normal(B, T, D)
  variables = randomised(module.init(jax.random.key(0), x))
  p = variables['params']['Residual_0']['layer_norm']
  assert set(p) == {'scale'}
  x64 = 3.0 * np.asarray(x, np.float64)
  wanted = x64 / np.sqrt(np.mean(x64 ** 2, -1, keepdims=True) + 1e-6) * np.asarray(p['scale'])
  chex.assert_trees_all_close(module.apply(variables, x), np.float32(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_embeddings_are_scaled_by_the_root_of_the_width_before_positions_are_added(dtype):
  module = Embedding(config(dtype=dtype), N)
  tokens, positions = jnp.asarray([[3, 5, 3], [36, 0, 7]]), normal(B, 3, D)
  variables = module.init(jax.random.key(0), tokens, positions, deterministic=True)
  table = variables['params']['table']
  chex.assert_shape(table, (N, D))
  assert table.dtype == jnp.float32
  assert 0.8 < np.std(table) * D ** 0.5 < 1.2
  out = module.apply(variables, tokens, positions, deterministic=True)
  assert out.dtype == jnp.dtype(dtype)
  chex.assert_trees_all_close(out.astype(jnp.float32), table[tokens] * D ** 0.5 + positions,
                              rtol=1e-6 if dtype == 'float32' else 0.01, atol=0.03)


def test_dropout_is_on_the_sum_of_embeddings_and_positions(monkeypatch):
  monkeypatch.setattr(layers, 'dropout', lambda key, x, rate: jnp.zeros_like(x))
  module, tokens, positions = Embedding(CONFIG, N), jnp.asarray([3, 5]), normal(2, D)
  out, _ = module.init_with_output({'params': jax.random.key(0), 'dropout': jax.random.key(1)},
                                   tokens, positions, deterministic=False)
  assert not np.any(out)


@pytest.mark.parametrize('kind', ['sinusoidal', 'learned'])
def test_positions_are_rows_of_their_table(kind):
  module = Positions(config(positions=kind))
  positions = jnp.asarray([[0, 1, 2, 0, 1], [4, 3, 2, 1, 0]])
  variables = module.init(jax.random.key(0), positions, 5)
  learned = kind == 'learned'
  assert bool(variables) == learned
  table = variables['params']['table'] if learned else jnp.asarray(sinusoidal_positions(5, D))
  chex.assert_trees_all_equal(module.apply(variables, positions, 5), table[positions])


def test_dropout_is_off_if_deterministic_and_else_the_op(monkeypatch):
  x = normal(B, T, D)
  assert Dropout(0.3).apply({}, x, deterministic=True) is x
  assert Dropout(0.0).apply({}, x, deterministic=False) is x
  monkeypatch.setattr(layers, 'dropout', lambda key, x, rate: (x, rate))
  assert Dropout(0.3).apply({}, x, deterministic=False,
                            rngs={'dropout': jax.random.key(0)}) == (x, 0.3)
