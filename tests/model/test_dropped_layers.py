"""Layers and words that training drops, and stacks of different depths."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import SIZES, normal
from transformer.model import layers
from transformer.model.attention import Placement
from transformer.model.attention_weights import attention_weights
from transformer.model.config import ModelConfig
from transformer.model.transformer import DecoderLayer, EncoderLayer
from transformer.ops.positions import sinusoidal_positions

N = 37


def test_layer_drop_skips_whole_layers_and_only_in_training(build, batch):
  tiny = build(dropout=0.0, layer_drop=0.5, norm='pre')
  one = build(dropout=0.0, norm='pre')

  @jax.jit
  def encode(key):
    return tiny.model.apply({'params': tiny.params}, *batch[:3], deterministic=False,
                            rngs={'dropout': key}, method='encode')

  def without(*dropped):
    """Encodes with the output projections of some layers at zero, so that they add nothing."""
    params = dict(tiny.params)
    for number in dropped:
      layer = dict(params[f'encoder_{number}'])
      layer['self_attention'] = layer['self_attention'] | {'output': jax.tree.map(
          jnp.zeros_like, layer['self_attention']['output'])}
      layer['feed_forward'] = layer['feed_forward'] | {'outer': jax.tree.map(
          jnp.zeros_like, layer['feed_forward']['outer'])}
      params[f'encoder_{number}'] = layer
    return one.encode(params, *batch[:3])

  chex.assert_trees_all_close(tiny.encode(tiny.params, *batch[:3]), without(), atol=1e-6)
  expected = [without(), without(0), without(1), without(0, 1)]
  seen = set()
  for number in range(20):
    found = encode(jax.random.key(number))
    matches = [index for index, each in enumerate(expected) if np.allclose(found, each, atol=1e-5)]
    assert len(matches) == 1
    seen.update(matches)
  assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize('stack', [EncoderLayer, DecoderLayer])
def test_layer_drop_is_the_share_of_dropped_layers_in_both_stacks(stack):
  layer = stack(ModelConfig(**SIZES | {'dropout': 0.0, 'layer_drop': 0.2}))
  x_BTD, mask_BTS = normal(1, 5, SIZES['model_dim']), jnp.ones((1, 5, 5), bool)

  def call(layer, deterministic):
    memory = () if stack is EncoderLayer else (layer.cross_attention.keys_values(x_BTD), mask_BTS)
    placement = Placement(jnp.arange(5)[None], None)
    return layer(x_BTD, mask_BTS, placement, *memory, deterministic=deterministic)

  variables = layer.init(jax.random.key(0), True, method=call)
  keys = jax.random.split(jax.random.key(1), 500)
  outputs = jax.jit(jax.vmap(lambda key: layer.apply(
      variables, False, rngs={'dropout': key}, method=call)))(keys)
  dropped = jnp.all(outputs == x_BTD[None], axis=(1, 2, 3))
  assert 0.14 < dropped.mean() < 0.26
  whole = layer.apply(variables, True, method=call)
  chex.assert_trees_all_close(outputs[~dropped], jnp.broadcast_to(
      whole[None], (500 - dropped.sum(), *whole.shape)), atol=1e-5)


def test_word_dropout_zeroes_whole_embeddings_and_no_positions():
  config = ModelConfig(**SIZES | {'dropout': 0.0, 'word_dropout': 0.25})
  module, tokens = layers.Embedding(config, N), jnp.arange(1000).reshape(10, 100) % N
  positions = jnp.asarray(sinusoidal_positions(100, config.model_dim))
  variables = module.init(jax.random.key(0), tokens, None, deterministic=True)
  whole = module.apply(variables, tokens, None, deterministic=True)
  dropped = module.apply(variables, tokens, positions[None], deterministic=False,
                         rngs={'dropout': jax.random.key(1)})
  words = dropped - positions[None]
  kept = np.any(np.abs(words) > 1e-4, -1)
  assert 0.7 < kept.mean() < 0.8
  chex.assert_trees_all_close(words, jnp.where(kept[..., None], whole / 0.75, 0), atol=1e-5)


@pytest.mark.long(but=('changed1',))
@pytest.mark.parametrize('changed', [{'encoder_layers': 3, 'decoder_layers': 1},
                                     {'encoder_layers': 1, 'num_layers': 3}])
def test_stacks_may_be_of_different_depths(build, batch, changed):
  tiny = build(**changed)
  depths = {stack: sum(name.startswith(f'{stack}_') and name[8:].isdigit() for name in tiny.params)
            for stack in ('encoder', 'decoder')}
  assert depths == {'encoder': changed['encoder_layers'],
                    'decoder': changed.get('decoder_layers', 3)}
  weights = attention_weights(tiny.model, tiny.params, *batch)
  assert weights.encoder.shape[0] == depths['encoder']
  assert weights.decoder.shape[0] == weights.cross.shape[0] == depths['decoder']
  chex.assert_tree_all_finite(tiny.forward(tiny.params, *batch))
