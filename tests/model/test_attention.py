"""Multi-head attention is its formula in section 3.2."""

import dataclasses

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model import formulas
from tests.model.conftest import (
  B,
  D,
  H,
  K,
  S,
  T,
  V,
  minus_infinity_off,
  normal,
  randomized,
)
from transformer.model.attention import (
  NO_CONTEXT,
  AttentionContext,
  MultiHeadAttention,
  RelativeBias,
)
from transformer.model.config import ModelConfig
from transformer.ops.positions import relative_buckets

CONFIG = ModelConfig(
  num_layers=2, model_dim=D, num_heads=H, key_dim=K, value_dim=V, attention_bias='all'
)


class Attend(nn.Module):
  """Attention as the encoder and decoder use it: projects keys and values, then attends."""

  config: ModelConfig

  def setup(self):
    self.attention = MultiHeadAttention(self.config)

  def __call__(self, x_BTD, y_BSD, context=NO_CONTEXT, **options):
    return self.attention(
      x_BTD, self.attention.keys_values(y_BSD, context), context, **options
    )


def check_formula(found, p, x, y, bias=0.0, **changed):
  """Compares an output of attention from x to y with its formula."""
  wanted = formulas.attention(
    dataclasses.replace(CONFIG, **changed), *formulas.exact((p, x, y)), bias, own=True
  )
  chex.assert_trees_all_close(found, np.float32(wanted), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('biases', ['none', 'output', 'all'])
def test_multi_head_attention_is_its_formula(biases):
  module = Attend(dataclasses.replace(CONFIG, attention_bias=biases))
  x, y = normal(B, T, D), normal(B, S, D, seed=1)
  variables = randomized(jax.jit(module.init)(jax.random.key(0), x, y))
  mask = np.random.default_rng(2).random((B, T, S)) < 0.5
  mask[..., 0] = True
  p = variables['params']['attention']
  assert {name for name in p if 'bias' in p[name]} == {
    'none': set(),
    'output': {'output'},
    'all': {'query', 'key', 'value', 'output'},
  }[biases]
  check_formula(
    module.apply(variables, x, y, AttentionContext(jnp.asarray(mask))),
    p,
    x,
    y,
    minus_infinity_off(mask),
  )


def test_the_config_chooses_the_kernel(monkeypatch):
  same = dataclasses.replace(CONFIG, key_dim=8, value_dim=8, dtype='bfloat16')
  x, y = normal(B, T, D), normal(B, S, D, seed=1)
  variables = randomized(Attend(same).init(jax.random.key(0), x, y))
  mask = np.ones((B, T, S), bool)
  mask[:, 1] = False  # A query that may attend to nothing.
  context = AttentionContext(jnp.asarray(mask))
  wanted = Attend(same).apply(variables, x, y, context)
  plain = jax.nn.dot_product_attention
  calls = []

  def kernel(*given, bias, mask, scale, implementation):
    calls.append(implementation)
    return plain(*given, bias=bias, mask=mask, scale=scale, implementation='xla')

  monkeypatch.setattr(jax.nn, 'dot_product_attention', kernel)
  module = Attend(dataclasses.replace(same, attention='cudnn'))
  fused = module.apply(variables, x, y, context)
  assert calls == ['cudnn']
  assert fused.dtype == jnp.bfloat16
  chex.assert_trees_all_close(
    fused.astype(jnp.float32), wanted.astype(jnp.float32), atol=0.05
  )


def applied(changed, x, context=NO_CONTEXT, **options):
  """Returns the output of a configured self-attention, and its random parameters."""
  module = Attend(dataclasses.replace(CONFIG, **changed))
  variables = randomized(module.init(jax.random.key(0), x, x))
  return module.apply(variables, x, x, context, **options), variables['params'][
    'attention'
  ]


def test_query_key_norm_is_of_each_head_before_the_dot_product():
  x = normal(B, T, D)
  found, p = applied({'query_key_norm': True}, x)
  for name in ('query_norm', 'key_norm'):
    chex.assert_tree_shape_prefix(p[name], (K,))
    assert set(p[name]) == {'scale'}
  check_formula(found, p, x, x, query_key_norm=True)


def test_rotary_positions_rotate_queries_and_keys_and_a_shift_of_all_changes_nothing():
  x, places, rotary = (
    normal(B, T, D),
    jnp.arange(T),
    {'positions': 'rotary', 'key_dim': 8},
  )
  found, p = applied(rotary, x, AttentionContext(positions_BT=places))
  check_formula(found, p, x, x, **rotary)
  shifted, _ = applied(rotary, x, AttentionContext(positions_BT=places + 101))
  chex.assert_trees_all_close(shifted, found, rtol=1e-3, atol=1e-4)
  # Without positions or with other kinds of positions, nothing is rotated.
  still, _ = applied(rotary, x)
  assert np.max(np.abs(still - found)) > 0.01
  plain, wanted = (
    applied({'key_dim': 8}, x, context)[0]
    for context in (AttentionContext(positions_BT=places), NO_CONTEXT)
  )
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
  found, p = applied(
    {'positions': 'relative'}, x, AttentionContext(None, places, bias_HTS)
  )
  check_formula(found, p, x, x, np.asarray(bias_HTS))


def test_attention_dropout_is_only_in_training():
  x, half = normal(B, T, D), {'attention_dropout': 0.5}
  wanted, _ = applied({}, x)
  chex.assert_trees_all_equal(applied(half, x, deterministic=True)[0], wanted)
  dropped, _ = applied(
    half, x, deterministic=False, rngs={'dropout': jax.random.key(0)}
  )
  assert np.all(np.any(dropped != wanted, -1))
