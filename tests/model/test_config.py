"""The config sets the sizes of the model, and rejects impossible models in one line."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from configs import modern, table3, wmt14
from tests.model.conftest import SIZES, N
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer


def test_a_config_is_immutable_except_in_its_type():
  with pytest.raises(dataclasses.FrozenInstanceError):
    ModelConfig().dropout = 0.2
  short = ModelConfig(attention='cudnn', dtype='bfloat16')
  assert (
    short.with_dtype('float32') == ModelConfig()
    and short.with_dtype('bfloat16') == short
  )
  assert ModelConfig().with_dtype('bfloat16') == ModelConfig(dtype='bfloat16')


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    (
      {'num_layers': 1001},
      'model.num_layers must be at least 1 and at most 1000; got 1001',
    ),
    *(
      (
        {'num_heads': 3, 'model_dim': 8} | widths,
        'num_heads must divide model_dim; got num_heads=3, model_dim=8 '
        '(or set model.key_dim and model.value_dim)',
      )
      for widths in ({}, {'key_dim': 5})
    ),
    (
      {'positions': 'rotary', 'key_dim': 7},
      'model.positions=rotary needs an even key_dim; got 7',
    ),
    (
      {'attention': 'cudnn', 'dtype': 'bfloat16', 'attention_dropout': 0.1},
      'model.attention=cudnn has no attention dropout; set model.attention_dropout=0; got 0.1',
    ),
    (
      {'attention': 'cudnn'},
      'model.attention=cudnn needs 16-bit activations; set --config.model.dtype=bfloat16',
    ),
    *(
      (
        {'attention': 'cudnn', 'dtype': 'bfloat16'} | widths,
        f'model.attention=cudnn needs equal key_dim and value_dim, a multiple of 8 and at most '
        f'256; got key_dim={key}, value_dim={value}',
      )
      for widths, key, value in (
        ({'value_dim': 32}, 64, 32),
        ({'model_dim': 100, 'num_heads': 4}, 25, 25),
        ({'model_dim': 528, 'num_heads': 2}, 264, 264),
      )
    ),
  ],
)
def test_an_impossible_config_is_rejected_in_one_line(given, message):
  with pytest.raises(UserError) as error:
    ModelConfig(**given)
  assert str(error.value) == message


def parameters(config: ModelConfig, vocabulary):
  """Returns the shapes of the parameters, without computing any."""
  init = Transformer(config, vocabulary).init
  return jax.eval_shape(init, jax.random.key(0), *[jnp.zeros((1, 2), jnp.int32)] * 6)[
    'params'
  ]


@functools.cache
def count(config: ModelConfig, vocabulary):
  return sum(leaf.size for leaf in jax.tree.leaves(parameters(config, vocabulary)))


def by_hand(vocabulary, layers, d, f, h, k, v, positions=0):
  """Counts the parameters of a Transformer: section 3; attention has no biases."""
  attention = 2 * d * h * k + d * h * v + h * v * d
  feed_forward = (d * f + f) + (f * d + d)
  norm = 2 * d
  encoder = attention + feed_forward + 2 * norm
  decoder = 2 * attention + feed_forward + 3 * norm
  return layers * (encoder + decoder) + vocabulary * d + 2 * positions * d


# Table 3: N, d_model, d_ff, h, d_k, d_v, P_drop, ε_ls, learned positions, steps, and millions of
# parameters where the paper reports them.
TABLE_3 = {
  'base': (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 0, 100_000, 65),
  'A1': (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 0, 100_000, None),
  'A2': (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 0, 100_000, None),
  'A3': (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 0, 100_000, None),
  'A4': (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 0, 100_000, None),
  'B1': (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 0, 100_000, 58),
  'B2': (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 0, 100_000, 60),
  'C1': (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 0, 100_000, 36),
  'C2': (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 0, 100_000, 50),
  'C3': (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 0, 100_000, 80),
  'C4': (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 0, 100_000, 28),
  'C5': (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 0, 100_000, 168),
  'C6': (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 0, 100_000, 53),
  'C7': (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 0, 100_000, 90),
  'D1': (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 0, 100_000, None),
  'D2': (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 0, 100_000, None),
  'D3': (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 0, 100_000, None),
  'D4': (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 0, 100_000, None),
  'E': (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 1024, 100_000, None),
  'big': (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 0, 300_000, 213),
}


@pytest.mark.long(but=('base', 'B1', 'E'))
@pytest.mark.parametrize('row', TABLE_3)
def test_a_row_of_table_3_is_the_papers_model(row):
  layers, d, f, h, k, v, dropout, smoothing, positions, steps, millions = TABLE_3[row]
  settings = Config.from_dict(table3.get_config(row).to_dict())
  c = settings.model
  assert (
    c.num_layers,
    c.model_dim,
    c.ff_dim,
    c.num_heads,
    c.head_key_dim,
    c.head_value_dim,
    c.dropout,
    settings.train.label_smoothing,
    settings.train.steps,
  ) == (layers, d, f, h, k, v, dropout, smoothing, steps)
  assert (c.positions, c.norm_position) == (
    'learned' if positions else 'sinusoidal',
    'post',
  )
  found = count(c, settings.data.vocabulary_size)
  assert found == by_hand(37_000, layers, d, f, h, k, v, positions=positions)
  if millions:
    assert found == pytest.approx(millions * 1e6, rel=0.07)
  assert (row == 'base') == (settings == Config.from_dict(wmt14.get_config().to_dict()))
  assert (row == 'big') == (
    settings == Config.from_dict(wmt14.get_config('big').to_dict())
  )


def test_the_modern_model_has_the_size_of_the_base_model():
  settings = Config.from_dict(modern.get_config().to_dict())
  c, d, f = settings.model, 512, 1360
  assert (c.norm_position, c.rms_norm, c.query_key_norm, c.positions, c.activation) == (
    'pre',
    True,
    True,
    'rotary',
    'swiglu',
  )
  attention = 4 * d * d + 2 * 64  # All heads share the scales of queries and keys.
  feed_forward, norm = 3 * d * f, d
  encoder, decoder = (
    attention + feed_forward + 2 * norm,
    2 * attention + feed_forward + 3 * norm,
  )
  found = count(c, 37_000)
  assert found == 37_000 * d + 6 * (encoder + decoder) + 2 * norm
  assert found == pytest.approx(count(ModelConfig(), 37_000), rel=0.01)


def test_there_is_no_other_row_of_table_3():
  for row in ('A5', '', 'a1', 'A'):
    with pytest.raises(UserError) as raised:
      table3.get_config(row)
    assert str(raised.value) == (
      f'configs/table3.py takes a row of table 3, one of {", ".join(TABLE_3)}; got {row!r}'
    )


@pytest.mark.parametrize(
  'changed, extra',
  [
    ({}, set()),
    ({'share_embeddings': False}, {'source_embedding'}),
    ({'tie_output': False}, {'output'}),
    ({'output_bias': True}, {'output_bias'}),
    (
      {'norm_position': 'pre', 'positions': 'learned'},
      {'encoder_norm', 'decoder_norm', 'source_position', 'target_position'},
    ),
  ],
)
def test_parameters_have_the_names_that_checkpoints_need(changed, extra):
  params = parameters(ModelConfig(**SIZES | changed), N)
  assert set(params) == {
    'target_embedding',
    'encoder_0',
    'encoder_1',
    'decoder_0',
    'decoder_1',
    *extra,
  }
  encoder = {
    'self_attention',
    'self_attention_residual',
    'feed_forward',
    'feed_forward_residual',
  }
  assert set(params['encoder_1']) == encoder
  assert set(params['decoder_1']) == encoder | {
    'cross_attention',
    'cross_attention_residual',
  }
  assert set(params['decoder_1']['cross_attention']) == {
    'query',
    'key',
    'value',
    'output',
  }
