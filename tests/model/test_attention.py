"""Multi-head attention is its formula in section 3.2, and caches change nothing."""

import dataclasses

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model import formulas
from tests.model.conftest import B, D, H, K, S, T, V, W, minus_infinity_off, normal, randomised
from transformer.model.attention import FREE, KVCache, Layout, MultiHeadAttention, RelativeBias
from transformer.model.config import ModelConfig
from transformer.ops.masks import causal_mask, lineage_mask
from transformer.ops.positions import relative_buckets

CONFIG = ModelConfig(num_layers=2, model_dim=D, num_heads=H, key_dim=K, value_dim=V,
                     attention_bias='all')


class Attend(nn.Module):
  """Attention as the encoder and decoder use it: projects keys and values, then attends."""

  config: ModelConfig

  def setup(self):
    self.attention = MultiHeadAttention(self.config)

  def __call__(self, x_BTD, y_BSD, layout=FREE):
    return self.attention(x_BTD, self.attention.keys_values(y_BSD, layout), layout)

  def extend(self, x_BWD, cache, mask_BWS, index):
    return self.attention.extend(x_BWD, cache, Layout(mask_BWS), index)


@pytest.fixture(scope='module')
def attend():
  module = Attend(CONFIG)
  variables = randomised(jax.jit(module.init)(jax.random.key(0), normal(1, 2, D), normal(1, 3, D)))
  return module, variables


def check_formula(found, p, x, y, bias=0.0, **changed):
  """Compares an output of attention from x to y with its formula."""
  wanted = formulas.attention(dataclasses.replace(CONFIG, **changed), *formulas.exact((p, x, y)),
                              bias, own=True)
  chex.assert_trees_all_close(found, np.float32(wanted), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('biases', ['none', 'output', 'all'])
def test_multi_head_attention_is_its_formula(biases):
  module = Attend(dataclasses.replace(CONFIG, attention_bias=biases))
  x, y = normal(B, T, D), normal(B, S, D, seed=1)
  variables = randomised(jax.jit(module.init)(jax.random.key(0), x, y))
  mask = np.random.default_rng(2).random((B, T, S)) < 0.5
  mask[..., 0] = True
  p = variables['params']['attention']
  assert {name for name in p if 'bias' in p[name]} == {
      'none': set(), 'output': {'output'}, 'all': {'query', 'key', 'value', 'output'}}[biases]
  check_formula(module.apply(variables, x, y, Layout(jnp.asarray(mask))), p, x, y,
                minus_infinity_off(mask))


def test_extending_a_cache_is_causal_attention_one_position_at_a_time(attend):
  module, variables = attend
  x = normal(B, W, T, D)
  wanted = jax.jit(module.apply)(variables, x, x, Layout(causal_mask(T)))
  # Slots after `index` are not read.
  cache = KVCache(jnp.full((B, H, K, T * W), 9.0), jnp.full((B, H, T * W, V), 9.0))
  extend = jax.jit(lambda *given: module.apply(variables, *given, method='extend'))
  lineage = jnp.broadcast_to(jnp.arange(W)[:, None], (B, W, T))
  for index in range(T):
    out, cache = extend(x[:, :, index], cache, lineage_mask(lineage, index), jnp.int32(index))
    chex.assert_trees_all_close(out, wanted[:, :, index], rtol=1e-4, atol=1e-5)


def test_padding_a_cache_keeps_its_content():
  cache = KVCache(normal(B, H, K, 4), normal(B, H, 4, V))
  larger = cache.padded_to(7)
  chex.assert_shape((larger.keys, larger.values), [(B, H, K, 7), (B, H, 7, V)])
  chex.assert_trees_all_equal((larger.keys[..., :4], larger.values[:, :, :4]), tuple(cache))
  assert not np.any(larger.keys[..., 4:]) and not np.any(larger.values[:, :, 4:])


def test_the_config_chooses_the_kernel(monkeypatch):
  same = dataclasses.replace(CONFIG, key_dim=8, value_dim=8, dtype='bfloat16')
  x, y = normal(B, T, D), normal(B, S, D, seed=1)
  variables = Attend(same).init(jax.random.key(0), x, y)
  wanted = Attend(same).apply(variables, x, y)
  plain = jax.nn.dot_product_attention
  calls = []

  def kernel(*given, bias, mask, scale, implementation):
    calls.append(implementation)
    return plain(*given, bias=bias, mask=mask, scale=scale, implementation='xla')

  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel)
  fused = Attend(dataclasses.replace(same, attention='cudnn')).apply(variables, x, y)
  assert calls == ['cudnn']
  assert fused.dtype == jnp.bfloat16
  chex.assert_trees_all_close(fused.astype(jnp.float32), wanted.astype(jnp.float32), atol=0.05)


def applied(changed, x, layout=FREE):
  """Returns the output of a configured self-attention, and its random parameters."""
  module = Attend(dataclasses.replace(CONFIG, **changed))
  variables = randomised(module.init(jax.random.key(0), x, x))
  return module.apply(variables, x, x, layout), variables['params']['attention']


def test_query_key_norm_is_of_each_head_before_the_dot_product():
  x = normal(B, T, D)
  found, p = applied({'query_key_norm': True}, x)
  for name in ('query_norm', 'key_norm'):
    chex.assert_tree_shape_prefix(p[name], (K,))
    assert set(p[name]) == {'scale'}
  check_formula(found, p, x, x, query_key_norm=True)


def test_rotary_positions_rotate_queries_and_keys_and_a_shift_of_all_changes_nothing():
  x, places, rotary = normal(B, T, D), jnp.arange(T), {'positions': 'rotary', 'key_dim': 8}
  found, p = applied(rotary, x, Layout(positions_BT=places))
  check_formula(found, p, x, x, **rotary)
  shifted, _ = applied(rotary, x, Layout(positions_BT=places + 101))
  chex.assert_trees_all_close(shifted, found, rtol=1e-3, atol=1e-4)
  # Without positions or with other kinds of positions, nothing is rotated.
  still, _ = applied(rotary, x)
  assert np.max(np.abs(still - found)) > 0.01
  plain, wanted = (applied({'key_dim': 8}, x, layout)[0]
                   for layout in (Layout(positions_BT=places), FREE))
  chex.assert_trees_all_equal(plain, wanted)


@pytest.mark.parametrize('bidirectional', [True, False])
def test_relative_bias_is_added_to_the_scores_of_each_head(bidirectional):
  config = dataclasses.replace(CONFIG, positions='relative')
  module = RelativeBias(config, bidirectional)
  places = jnp.arange(T)
  variables = module.init(jax.random.key(0), places, places)
  bias_HTS = module.apply(variables, places, places + 2)
  table = np.asarray(variables['params']['table'])
  chex.assert_shape(table, (32, H))
  for t, s in ((0, 0), (7, 3), (3, 19), (22, 0)):
    bucket = int(relative_buckets(jnp.asarray(s + 2 - t), bidirectional=bidirectional))
    np.testing.assert_array_equal(bias_HTS[:, t, s], table[bucket])
  x, bias_HTS = normal(B, T, D), 3.0 * normal(H, T, T, seed=5)
  found, p = applied({'positions': 'relative'}, x, Layout(None, places, bias_HTS))
  check_formula(found, p, x, x, np.asarray(bias_HTS))


def test_attention_dropout_is_of_the_weights_and_only_in_training():
  module = MultiHeadAttention(dataclasses.replace(CONFIG, attention_dropout=0.5))
  x = normal(B, T, D)

  def run(variables, deterministic, key=0):
    return module.apply(variables, x, module.apply(variables, x, method='keys_values'),
                        deterministic=deterministic, rngs={'dropout': jax.random.key(key)})

  plain = MultiHeadAttention(CONFIG)
  keys_values = normal(B, T, H, K), normal(B, T, H, V)
  variables = randomised(plain.init(jax.random.key(0), x, keys_values, method=lambda self, x, kv: (
      self.keys_values(x), self(x, kv))))
  wanted = plain.apply(variables, x, plain.apply(variables, x, method='keys_values'))
  chex.assert_trees_all_equal(run(variables, True), wanted)
  dropped = run(variables, False)
  chex.assert_trees_all_equal(run(variables, False), dropped)
  assert np.all(np.any(dropped != wanted, -1)) and np.any(run(variables, False, 1) != dropped)
