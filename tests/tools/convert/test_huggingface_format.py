"""A model becomes a folder of MarianMT or Pegasus and comes back; others are rejected by name."""

import importlib
import json
import pathlib
import re
import shutil
import sys

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools.convert.random_models import (
  KINDS,
  SHAPE,
  change_tensors,
  opinionated,
  rejects,
)
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.tools.convert.huggingface_format import check_model, write_model
from transformer.tools.convert.huggingface_import import read_model
from transformer.tools.convert.huggingface_tensors import WEIGHTS
from transformer.tools.convert.safetensors_format import read_tensors, write_tensors
from transformer.training.config import TrainConfig

ROOT = pathlib.Path(__file__).parents[3]
ORDER = [*range(0, 14, 2), *range(1, 14, 2)]  # All sines come before all cosines.


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(['a man in a red shirt', 'ein mann in rotem hemd'] * 3, 285)


@pytest.fixture(scope='module')
def export(vocabulary, tmp_path_factory):
  def export(**settings):
    folder = tmp_path_factory.mktemp('exported')
    config = Config(
      DataConfig(vocabulary_size=vocabulary.size, max_length=37),
      ModelConfig(**SHAPE | settings),
      train=TrainConfig(tokens_per_batch=370),
      decode=DecodeConfig(beam_size=3),
    )
    params = opinionated(Transformer(config.model, vocabulary.size))
    write_model(folder, config, params, vocabulary)
    vocabulary.save(folder / 'vocabulary.model')
    return folder, config, params

  return export


@pytest.fixture(scope='module')
def exported(export):
  return export(attention_bias='none', dropout=0.3, attention_dropout=0.2)


@pytest.mark.long(
  but=('biases of outputs', 'separate tables', 'bias of the logits', 'norms before')
)
@pytest.mark.parametrize('settings', KINDS.values(), ids=KINDS)
def test_a_model_round_trips(export, vocabulary, settings):
  folder, config, params = export(**settings)
  about = json.loads((folder / 'config.json').read_bytes())
  assert about['model_type'] == (
    'pegasus' if config.model.norm_position == 'pre' else 'marian'
  )
  back = read_model(folder)
  # Scaling there and back rounds once.
  chex.assert_trees_all_close(back.params, params, rtol=3e-7, atol=0)
  assert back.vocabulary.fingerprint == vocabulary.fingerprint
  assert (back.config.data.vocabulary_size, back.config.data.max_length) == (285, 37)
  assert back.config.decode.beam_size == 3
  for name in (
    'num_layers',
    'decoder_depth',
    'ff_dim',
    'num_heads',
    'activation',
    'dropout',
    'attention_bias',
    'attention_dropout',
    'share_embeddings',
    'tie_output',
    'norm_position',
    'output_bias',
  ):
    assert getattr(back.config.model, name) == getattr(config.model, name), name


def test_sines_come_before_cosines_and_missing_biases_are_zero(
  exported, export, vocabulary
):
  folder, _, params = exported
  tensors = read_tensors(folder / WEIGHTS)[1]
  np.testing.assert_array_equal(
    tensors['model.shared.weight'], params['target_embedding']['table'][:, ORDER]
  )
  assert not tensors['model.decoder.layers.0.encoder_attn.q_proj.bias'].any()
  assert tensors['final_logits_bias'].shape == (1, vocabulary.size)
  assert not tensors['final_logits_bias'].any()
  assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}
  # In a Pegasus, the library adds the positions, so no residual sum may grow.
  folder, _, params = export(norm_position='pre')
  np.testing.assert_array_equal(
    read_tensors(folder / WEIGHTS)[1]['model.encoder.layers.1.fc2.weight'],
    params['encoder_1']['feed_forward']['outer']['kernel'][:, ORDER].T,
  )


@pytest.mark.parametrize(
  ('base', 'setting', 'value'),
  [
    ('MarianMT', 'rms_norm', True),
    ('MarianMT', 'query_key_norm', True),
    ('MarianMT', 'positions', 'rotary'),
    ('MarianMT', 'activation', 'swiglu'),
    ('MarianMT', 'key_dim', 32),
    ('MarianMT', 'value_dim', 128),
    ('Pegasus', 'share_embeddings', False),
    ('Pegasus', 'tie_output', False),
  ],
)
def test_other_models_are_rejected_by_name(base, setting, value):
  norm = {'MarianMT': 'post', 'Pegasus': 'pre'}[base]
  check_model(ModelConfig(norm_position=norm))
  with pytest.raises(
    UserError, match=rf'^{base} does not support model\.{setting}={value}: .*tensors$'
  ):
    check_model(ModelConfig(**{'norm_position': norm, setting: value}))


@pytest.mark.parametrize(
  'name',
  ['text', 'tatoeba', 'multi30k', 'multi30k_tiny', 'quickstart', 'wmt14', 'table3'],
)
def test_models_of_configs_for_translation_can_be_exported(name):
  config = importlib.import_module(f'configs.{name}').get_config()
  check_model(Config.from_dict(config.to_dict()).model)


def test_a_small_model_of_text_can_be_exported_with_the_flag_of_the_page(tmp_path):
  for language in ('en', 'de'):
    (tmp_path / f'train.{language}').write_text('words\n' * 3, 'utf-8')
  config = importlib.import_module('configs.text').get_config(f'small:{tmp_path}')
  with pytest.raises(UserError, match='rotary'):
    check_model(Config.from_dict(config.to_dict()).model)
  page = (ROOT / 'docs' / 'data.md').read_text('utf-8')
  section = page.partition('\n## First run\n')[2].partition('\n## ')[0]
  (flag,) = re.findall(r'`--config\.(model\.\w+=\w+)`', section)
  key, _, value = flag.partition('=')
  config.update_from_flattened_dict({key: value})
  check_model(Config.from_dict(config.to_dict()).model)


def test_a_parameter_that_the_library_lacks_is_rejected_by_name(
  exported, tmp_path, vocabulary
):
  _, config, params = exported
  cross, params = params['decoder_0']['cross_attention'], dict(params)
  # The config says that the tables are shared.
  for part, added in (
    (cross['query'], 'scale'),
    (params, 'gate'),
    (params, 'source_embedding'),
  ):
    part[added] = np.ones(2, np.float32)
    with pytest.raises(
      UserError, match=rf'^MarianMT does not support [a-z_0.]*{added}: '
    ):
      write_model(tmp_path, config, params, vocabulary)
    del part[added]
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('changes', 'fact'),
  [
    (
      {'model_type': 'bart'},
      'model_type=bart, and this project supports only marian or pegasus',
    ),
    (
      {'decoder_start_token_id': 0},
      'decoder_start_token_id=0, and this project supports only 1',
    ),
    ({'decoder_layers': 3}, 'should hold model.decoder.layers.2.*; it holds none'),
    (
      {'d_model': 28},
      'should hold model.shared.weight with 7980 numbers, .*; it holds 3990',
    ),
    (('config.json', None), 'config.json should hold a JSON object; .*No such file'),
    (
      ('tokenizer_config.json', None),
      'tokenizer_config.json should .* save model and tokenizer',
    ),
  ],
)
def test_incompatible_or_missing_items_are_named(exported, tmp_path, changes, fact):
  rejects(exported[0], tmp_path / 'model', changes, fact)


@pytest.mark.parametrize('number', [np.nan, np.inf])
def test_a_folder_that_is_not_finite_is_rejected_without_advice_for_training(
  exported, tmp_path, number
):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  name = 'model.encoder.layers.1.fc2.bias'
  change_tensors(folder, **{name: lambda bias: np.append(bias[1:], np.float32(number))})
  with pytest.raises(UserError, match=f'holds NaN or infinity in {name}; ') as caught:
    read_model(folder)
  assert 'learning rate' not in str(caught.value)


@pytest.mark.parametrize('kind', [np.float16, jnp.bfloat16])
def test_narrower_types_are_read(exported, tmp_path, kind):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  wanted = read_model(folder).params
  tensors = read_tensors(folder / WEIGHTS)[1]
  narrow = {name: tensor.astype(kind) for name, tensor in tensors.items()}
  write_tensors(folder / WEIGHTS, narrow, {})
  back = read_model(folder).params
  chex.assert_trees_all_equal_dtypes(back, wanted)
  chex.assert_trees_all_close(back, wanted, rtol=2**-8, atol=1e-7)


def test_a_folder_without_weights_in_one_file_is_rejected(exported, tmp_path):
  rejects(
    exported[0],
    tmp_path / 'model',
    (WEIGHTS, None),
    'should hold its weights as model.saf',
  )


def test_without_safetensors_the_error_has_the_install_command(monkeypatch):
  monkeypatch.setitem(sys.modules, 'safetensors', None)
  for module in ('safetensors_format', 'huggingface_tensors'):
    monkeypatch.delitem(sys.modules, f'transformer.tools.convert.{module}')
  with pytest.raises(
    UserError, match=r'safetensors.* -m pip install -r .*/requirements\.txt$'
  ):
    importlib.import_module('transformer.tools.convert.huggingface_tensors')


def test_positions_that_the_library_has_trained_are_rejected(export):
  folder, _, _ = export(norm_position='pre')
  read_model(folder)
  name = 'model.encoder.embed_positions.weight'
  # Adam moves each number by its learning rate.
  change_tensors(folder, **{name: lambda table: table + np.float32(1e-5)})
  with pytest.raises(UserError, match=f'should hold sinusoids as {name}'):
    read_model(folder)


def test_a_bias_that_the_library_has_trained_round_trips_and_other_tensors_are_rejected(
  exported, tmp_path
):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  change_tensors(
    folder, final_logits_bias=lambda _: np.arange(285, dtype=np.float32)[None]
  )
  np.testing.assert_array_equal(
    read_model(folder).params['output_bias'], np.arange(285)
  )
  name = 'model.encoder.layers.0.self_attn.q_proj.lora_A.weight'
  change_tensors(folder, **{name: lambda _: np.ones((2, 14), np.float32)})
  with pytest.raises(
    UserError, match=rf'model holds {name}, which a model of this project lacks'
  ):
    read_model(folder)
