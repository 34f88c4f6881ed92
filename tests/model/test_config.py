"""A model's config sizes the model, and refuses in one line what cannot be built."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer

D, F, H, K, V, N = 13, 17, 3, 7, 11, 37
SIZES = {'num_layers': 2, 'model_dim': D, 'ff_dim': F, 'num_heads': H, 'key_dim': K,
         'value_dim': V, 'max_positions': 31}


def test_the_defaults_are_the_papers_base_model():
  config = ModelConfig()
  assert (config.num_layers, config.model_dim, config.ff_dim, config.num_heads) == (6, 512, 2048, 8)
  assert (config.head_key_dim, config.head_value_dim, config.dropout) == (64, 64, 0.1)
  assert (config.norm, config.positions) == ('post', 'sinusoidal')
  assert config.share_embeddings
  assert config.tie_output


@pytest.mark.parametrize('given, key_dim, value_dim', [
    ({}, 5, 5), ({'key_dim': 7}, 7, 5), ({'value_dim': 11}, 5, 11),
    ({'num_heads': 4, 'key_dim': 7, 'value_dim': 11}, 7, 11),
])
def test_head_widths_are_free_and_default_to_a_share_of_the_model(given, key_dim, value_dim):
  config = ModelConfig(**{'model_dim': 15, 'num_heads': 3} | given)
  assert (config.head_key_dim, config.head_value_dim) == (key_dim, value_dim)


def test_a_config_cannot_be_changed():
  with pytest.raises(dataclasses.FrozenInstanceError):
    ModelConfig().dropout = 0.2


@pytest.mark.parametrize('given, message', [
    ({'num_layers': 0}, 'model.num_layers must be at least 1; got 0'),
    ({'model_dim': -8}, 'model.model_dim must be at least 1; got -8'),
    ({'ff_dim': 0}, 'model.ff_dim must be at least 1; got 0'),
    ({'num_heads': 0}, 'model.num_heads must be at least 1; got 0'),
    ({'max_positions': 0}, 'model.max_positions must be at least 1; got 0'),
    ({'num_heads': 3, 'model_dim': 8},
     'num_heads must divide model_dim; got num_heads=3, model_dim=8 '
     '(or set model.key_dim and model.value_dim)'),
    ({'num_heads': 3, 'model_dim': 8, 'key_dim': 5},
     'num_heads must divide model_dim; got num_heads=3, model_dim=8 '
     '(or set model.key_dim and model.value_dim)'),
    ({'key_dim': 0}, 'model.key_dim must be at least 1; got 0'),
    ({'value_dim': -1}, 'model.value_dim must be at least 1; got -1'),
    ({'dropout': 1.0}, 'model.dropout must be at least 0 and below 1; got 1.0'),
    ({'dropout': -0.1}, 'model.dropout must be at least 0 and below 1; got -0.1'),
    ({'dropout': float('nan')}, 'model.dropout must be at least 0 and below 1; got nan'),
    ({'norm': 'rms'}, "model.norm must be one of post, pre; got 'rms'"),
    ({'positions': 'none'},
     "model.positions must be one of sinusoidal, learned, rotary, relative; got 'none'"),
    ({'positions': 'rotary', 'key_dim': 7}, 'model.positions=rotary needs an even key_dim; got 7'),
    ({'activation': 'tanh'}, "model.activation must be one of relu, gelu, swiglu; got 'tanh'"),
    ({'attention': 'flash'}, "model.attention must be one of reference, cudnn; got 'flash'"),
    ({'dtype': 'int8'}, "model.dtype must be one of float32, bfloat16; got 'int8'"),
    ({'attention': 'cudnn'},
     'model.attention=cudnn needs 16-bit activations; set --config.model.dtype=bfloat16'),
    ({'attention': 'cudnn', 'dtype': 'bfloat16', 'value_dim': 32},
     'model.attention=cudnn needs equal key_dim and value_dim; got key_dim=64, value_dim=32'),
    ({'attention': 'cudnn', 'dtype': 'bfloat16', 'model_dim': 100, 'num_heads': 4},
     'model.attention=cudnn needs heads whose width is a multiple of 8, at most 256; '
     'got key_dim=25'),
    ({'attention': 'cudnn', 'dtype': 'bfloat16', 'model_dim': 528, 'num_heads': 2},
     'model.attention=cudnn needs heads whose width is a multiple of 8, at most 256; '
     'got key_dim=264'),
])
def test_what_cannot_be_built_is_refused_in_one_line(given, message):
  with pytest.raises(UserError) as error:
    ModelConfig(**given)
  assert str(error.value) == message


def parameters(config: ModelConfig, vocabulary):
  """Shapes of the parameters, without making any."""
  init = Transformer(config, vocabulary).init
  return jax.eval_shape(init, jax.random.key(0), *[jnp.zeros((1, 2), jnp.int32)] * 6)['params']


def count(config: ModelConfig, vocabulary):
  return sum(leaf.size for leaf in jax.tree.leaves(parameters(config, vocabulary)))


def test_the_base_model_of_the_paper_has_63_million_parameters():
  assert count(ModelConfig(), 37_000) == 63_082_496


@pytest.mark.parametrize('changed', [
    {}, {'num_layers': 3}, {'key_dim': None, 'value_dim': None, 'model_dim': 12},
    {'norm': 'pre'}, {'positions': 'learned'}, {'share_embeddings': False},
    {'tie_output': False},
    {'norm': 'pre', 'positions': 'learned', 'share_embeddings': False, 'tie_output': False},
    {'activation': 'swiglu'}, {'norm': 'pre', 'rms_norm': True}, {'query_key_norm': True},
    {'positions': 'relative'}, {'positions': 'rotary', 'key_dim': 8},
])
def test_parameters_are_counted_by_hand(changed):
  c = ModelConfig(**SIZES | changed)
  d, h, k, v = c.model_dim, c.num_heads, c.head_key_dim, c.head_value_dim
  attention = 2 * (d * h * k + h * k) + (d * h * v + h * v) + (h * v * d + d)
  attention += 2 * k * c.query_key_norm
  feed_forward = 3 * d * F if c.activation == 'swiglu' else (d * F + F) + (F * d + d)
  norm = d if c.rms_norm else 2 * d
  layer = (attention + feed_forward + 2 * norm) + (2 * attention + feed_forward + 3 * norm)
  tables = 1 + (not c.share_embeddings) + (not c.tie_output)
  wanted = c.num_layers * layer + tables * N * d
  wanted += 2 * norm * (c.norm == 'pre') + 2 * 31 * d * (c.positions == 'learned')
  wanted += 2 * 32 * h * (c.positions == 'relative')
  assert count(c, N) == wanted


@pytest.mark.parametrize('changed, extra', [
    ({}, set()), ({'share_embeddings': False}, {'source_embedding'}),
    ({'tie_output': False}, {'output'}),
    ({'norm': 'pre', 'positions': 'learned'},
     {'encoder_norm', 'decoder_norm', 'source_position', 'target_position'}),
])
def test_parameters_have_the_names_that_checkpoints_keep(changed, extra):
  params = parameters(ModelConfig(**SIZES | changed), N)
  assert set(params) == {'target_embedding', 'encoder_0', 'encoder_1', 'decoder_0', 'decoder_1',
                         *extra}
  encoder = {'self_attention', 'self_attention_residual', 'feed_forward', 'feed_forward_residual'}
  assert set(params['encoder_1']) == encoder
  assert set(params['decoder_1']) == encoder | {'cross_attention', 'cross_attention_residual'}
  assert set(params['decoder_1']['cross_attention']) == {'query', 'key', 'value', 'output'}
