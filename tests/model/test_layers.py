"""Each layer is its formula in section 3, and caches change nothing."""

import dataclasses

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model import layers
from transformer.model.config import ModelConfig
from transformer.model.layers import (
  Cache,
  Dropout,
  Embedding,
  FeedForward,
  MultiHeadAttention,
  Positions,
  Residual,
)
from transformer.model.transformer import EncoderLayer
from transformer.ops.masks import causal_mask, lineage_mask
from transformer.ops.positions import sinusoidal_positions

B, H, W, K, V, D, F, S, T, N = 2, 3, 5, 7, 11, 13, 17, 19, 23, 37
CONFIG = ModelConfig(num_layers=2, model_dim=D, ff_dim=F, num_heads=H, key_dim=K, value_dim=V,
                     max_positions=31, dropout=0.3)


def config(**changed):
  return dataclasses.replace(CONFIG, **changed)


def normal(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def randomised(variables):
  """Biases and scales too, so that none can be left out unseen."""
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda x: x + jnp.asarray(rng.normal(size=x.shape) * 0.3, x.dtype), variables)


class Attend(nn.Module):
  """Attention as the encoder and decoder use it: project keys and values, then attend."""

  config: ModelConfig

  def setup(self):
    self.attention = MultiHeadAttention(self.config)

  def __call__(self, x_BTD, y_BSD, mask_BTS=None):
    return self.attention(x_BTD, self.attention.keys_values(y_BSD), mask_BTS)

  def extend(self, x_BWD, cache, mask_BWS, index):
    return self.attention.extend(x_BWD, cache, mask_BWS, index)

  def attend_to_cache(self, x_BWD, y_BSD, mask_BWS):
    return self.attention.attend(x_BWD, self.attention.cache(y_BSD), mask_BWS)


@pytest.fixture(scope='module')
def attend():
  module = Attend(CONFIG)
  variables = randomised(jax.jit(module.init)(jax.random.key(0), normal(1, 2, D), normal(1, 3, D)))
  return module, variables


def test_multi_head_attention_is_its_formula(attend):
  module, variables = attend
  x, y = normal(B, T, D), normal(B, S, D, seed=1)
  mask = np.random.default_rng(2).random((B, T, S)) < 0.5
  mask[..., 0] = True
  p = jax.tree.map(lambda x: np.asarray(x, np.float64), variables['params']['attention'])
  wanted = np.tile(p['output']['bias'], (B, T, 1))
  for h in range(H):
    q, k, v = (np.asarray(z) @ p[name]['kernel'][:, h] + p[name]['bias'][h]
               for name, z in (('query', x), ('key', y), ('value', y)))
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(K), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted += weights / weights.sum(-1, keepdims=True) @ v @ p['output']['kernel'][h]
  chex.assert_trees_all_close(module.apply(variables, x, y, jnp.asarray(mask)),
                              wanted.astype(np.float32), rtol=1e-4, atol=1e-5)


def test_eager_jit_vmap_and_pmap_agree_on_attention(attend):
  module, variables = attend
  x, y = normal(B, T, D), normal(B, S, D, seed=1)

  def apply(x, y):
    return module.apply(variables, x, y)

  eager = apply(x, y)
  for lifted in (jax.jit(apply), jax.vmap(apply), jax.pmap(apply)):
    chex.assert_trees_all_close(lifted(x, y), eager, rtol=1e-5, atol=1e-5)
  chex.assert_trees_all_close(apply(x[None], y[None]), eager[None], rtol=1e-5, atol=1e-5)


def test_attention_to_a_cache_is_attention(attend):
  module, variables = attend
  x, y = normal(B, W, D), normal(B, S, D, seed=1)
  mask = jnp.asarray(np.random.default_rng(2).random((B, W, S)) < 0.5).at[1, 3].set(False)
  wanted = module.apply(variables, x, y, mask)
  cached = jax.jit(lambda *given: module.apply(variables, *given, method='attend_to_cache'))
  chex.assert_trees_all_close(cached(x, y, mask), wanted, rtol=1e-4, atol=1e-5)


def test_extending_a_cache_is_causal_attention_one_position_at_a_time(attend):
  module, variables = attend
  x = normal(B, W, T, D)
  wanted = jax.jit(module.apply)(variables, x, x, causal_mask(T))
  # What lies ahead in a cache is not read.
  cache = Cache(jnp.full((B, H, K, T * W), 9.0), jnp.full((B, H, T * W, V), 9.0))
  extend = jax.jit(lambda *given: module.apply(variables, *given, method='extend'))
  lineage = jnp.broadcast_to(jnp.arange(W)[:, None], (B, W, T))
  for index in range(T):
    before = cache
    out, cache = extend(x[:, :, index], cache, lineage_mask(lineage, index), jnp.int32(index))
    chex.assert_trees_all_close(out, wanted[:, :, index], rtol=1e-4, atol=1e-5)
    untouched = np.arange(T * W) // W != index
    for axis, old, new in ((-1, before.keys, cache.keys), (-2, before.values, cache.values)):
      np.testing.assert_array_equal(np.compress(untouched, new, axis),
                                    np.compress(untouched, old, axis))


def test_more_room_keeps_what_a_cache_holds():
  cache = Cache(normal(B, H, K, 4), normal(B, H, 4, V))
  larger = cache.with_room(7)
  chex.assert_shape((larger.keys, larger.values), [(B, H, K, 7), (B, H, 7, V)])
  chex.assert_trees_all_equal((larger.keys[..., :4], larger.values[:, :, :4]), tuple(cache))
  assert not np.any(larger.keys[..., 4:]) and not np.any(larger.values[:, :, 4:])


def test_the_config_chooses_the_kernel(monkeypatch):
  same = config(key_dim=8, value_dim=8, dtype='bfloat16')
  x, y = normal(B, T, D), normal(B, S, D, seed=1)
  variables = Attend(same).init(jax.random.key(0), x, y)
  wanted = Attend(same).apply(variables, x, y)
  plain = jax.nn.dot_product_attention
  calls = []

  def kernel(*given, mask, implementation):
    calls.append(implementation)
    return plain(*given, mask=mask, implementation='xla')

  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel)
  fused = Attend(dataclasses.replace(same, attention='cudnn')).apply(variables, x, y)
  assert calls == ['cudnn']
  assert fused.dtype == jnp.bfloat16
  chex.assert_trees_all_close(fused.astype(jnp.float32), wanted.astype(jnp.float32), atol=0.05)


def test_feed_forward_is_its_formula_at_every_position_alike():
  module, x = FeedForward(CONFIG), normal(B, T, D)
  variables = randomised(module.init(jax.random.key(0), x))
  p = variables['params']
  chex.assert_shape(p['inner']['kernel'], (D, F))
  inner = np.maximum(x @ p['inner']['kernel'] + p['inner']['bias'].reshape(1, 1, F), 0.0)
  wanted = inner @ p['outer']['kernel'] + p['outer']['bias'].reshape(1, 1, D)
  chex.assert_trees_all_close(module.apply(variables, x), wanted, rtol=1e-5, atol=1e-5)
  order = np.random.default_rng(0).permutation(T)
  chex.assert_trees_all_close(module.apply(variables, x[:, order]), wanted[:, order], rtol=1e-5,
                              atol=1e-5)


class Join(nn.Module):
  """x joined with a sublayer that doubles what enters it."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x, factor=2.0):
    residual = Residual(self.config)
    return residual.join(x, factor * residual.enter(x), deterministic=True)


def layer_norm(x, p):
  x = np.asarray(x, np.float64)
  normal_x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
  return normal_x * np.asarray(p['scale']) + np.asarray(p['bias'])


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_the_norm_is_after_the_sum_or_on_the_way_into_the_sublayer(norm):
  module, x = Join(config(norm=norm)), normal(B, T, D)
  variables = randomised(module.init(jax.random.key(0), x))
  p = variables['params']['Residual_0']['layer_norm']
  wanted = x + 2.0 * layer_norm(x, p) if norm == 'pre' else layer_norm(3.0 * x, p)
  chex.assert_trees_all_close(module.apply(variables, x), np.float32(wanted), rtol=1e-4, atol=1e-5)
  if norm == 'pre':
    chex.assert_trees_all_equal(module.apply(variables, x, 0.0), x)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_only_a_post_norm_layer_gives_a_normalised_stream(norm):
  module, x = EncoderLayer(config(norm=norm)), 3.0 + 5.0 * normal(B, S, D)
  mask = jnp.ones((S, S), bool)
  variables = jax.jit(module.init, static_argnames='deterministic')(
      jax.random.key(0), x, mask, deterministic=True)
  out = module.apply(variables, x, mask, deterministic=True)
  mean, variance = jnp.mean(out, -1), jnp.var(out, -1)
  if norm == 'post':
    chex.assert_trees_all_close((mean, variance), (jnp.zeros((B, S)), jnp.ones((B, S))), atol=1e-4)
  else:
    assert np.all(variance > 2.0)
    assert np.mean(mean) > 1.0


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


@pytest.mark.parametrize('kind', ['sinusoidal', 'learned'])
def test_positions_are_rows_of_their_table(kind):
  module = Positions(config(positions=kind))
  positions = jnp.asarray([[0, 1, 2, 0, 1], [4, 3, 2, 1, 0]])
  variables = module.init(jax.random.key(0), positions, 5)
  learned = kind == 'learned'
  assert bool(variables) == learned
  table = variables['params']['table'] if learned else jnp.asarray(sinusoidal_positions(5, D))
  chex.assert_trees_all_equal(module.apply(variables, positions, 5), table[positions])


def test_dropout_is_off_without_a_key_and_the_op_with_one(monkeypatch):
  x = normal(B, T, D)
  assert Dropout(0.3).apply({}, x, deterministic=True) is x
  assert Dropout(0.0).apply({}, x, deterministic=False) is x
  monkeypatch.setattr(layers, 'dropout', lambda key, x, rate: (x, rate))
  assert Dropout(0.3).apply({}, x, deterministic=False,
                            rngs={'dropout': jax.random.key(0)}) == (x, 0.3)
