"""Layers and words that training drops, and stacks of different depths."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import SIZES
from transformer.model import layers
from transformer.model.attention_weights import attention_weights
from transformer.model.config import ModelConfig

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


def test_word_dropout_zeroes_whole_embeddings():
  config = ModelConfig(**SIZES | {'dropout': 0.0, 'word_dropout': 0.25, 'positions': 'rotary',
                                  'key_dim': 8})
  module, tokens = layers.Embedding(config, N), jnp.arange(1000).reshape(10, 100) % N
  variables = module.init(jax.random.key(0), tokens, None, deterministic=True)
  whole = module.apply(variables, tokens, None, deterministic=True)
  found = module.apply(variables, tokens, None, deterministic=False,
                       rngs={'dropout': jax.random.key(1)})
  kept = np.any(found != 0, -1)
  assert 0.7 < kept.mean() < 0.8
  chex.assert_trees_all_close(found, jnp.where(kept[..., None], whole / 0.75, 0), rtol=1e-5)


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
