"""A model becomes a folder of MarianMT or Pegasus and comes back; others are refused by name."""

import dataclasses
import importlib
import json
import shutil
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools.convert.random_models import (
  KINDS,
  SHAPE,
  change_json,
  change_tensors,
  opinionated,
  refuses,
  to_shards,
)
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert.huggingface_format import check_model, write_model
from transformer.tools.convert.huggingface_reading import load_huggingface, read_model
from transformer.tools.convert.huggingface_tensors import WEIGHTS
from transformer.tools.convert.safetensors_format import read_tensors, write_tensors
from transformer.training.config import TrainConfig

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
def test_a_model_comes_back(export, vocabulary, settings):
  folder, config, params = export(**settings)
  about = json.loads((folder / 'config.json').read_bytes())
  assert about['model_type'] == ('pegasus' if config.model.norm == 'pre' else 'marian')
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
    'norm',
    'output_bias',
  ):
    assert getattr(back.config.model, name) == getattr(config.model, name), name


def test_a_folder_is_a_run_in_python(exported):
  folder, _, params = exported
  run = load_huggingface(str(folder))
  (score,) = run.score(['a man'], ['ein mann'])
  assert dataclasses.replace(run, params=params).score(['a man'], ['ein mann']) == [
    pytest.approx(score, rel=1e-4)
  ]
  assert run.config.decode.beam_size == 3 and run.workdir == folder
  with pytest.raises(UserError, match='should hold a JSON object'):
    load_huggingface(folder / 'nothing')
  with pytest.raises(UserError, match='None cannot be used as a path'):
    load_huggingface(None)


def test_sines_come_before_cosines_and_missing_biases_are_zero(exported, export, vocabulary):
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
  folder, _, params = export(norm='pre')
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
def test_other_models_are_refused_by_name(base, setting, value):
  norm = {'MarianMT': 'post', 'Pegasus': 'pre'}[base]
  check_model(ModelConfig(norm=norm))
  with pytest.raises(UserError, match=rf'^{base} cannot hold model\.{setting}={value}: .*tensors$'):
    check_model(ModelConfig(**{'norm': norm, setting: value}))


def test_a_parameter_that_the_library_lacks_is_refused_by_name(exported, tmp_path, vocabulary):
  _, config, params = exported
  cross, params = params['decoder_0']['cross_attention'], dict(params)
  # The config says that the tables are shared.
  for part, added in ((cross['query'], 'scale'), (params, 'gate'), (params, 'source_embedding')):
    part[added] = np.ones(2, np.float32)
    with pytest.raises(UserError, match=rf'^MarianMT cannot hold [a-z_0.]*{added}: '):
      write_model(tmp_path, config, params, vocabulary)
    del part[added]
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('changes', 'fact'),
  [
    ({'model_type': 'bart'}, 'model_type=bart, and this project can hold only marian or pegasus'),
    ({'decoder_start_token_id': 0}, 'decoder_start_token_id=0, and this project can hold only 1'),
    ({'decoder_layers': 3}, 'should hold model.decoder.layers.2.*; it holds none'),
    ({'d_model': 28}, 'should hold model.shared.weight with 7980 numbers, .*; it holds 3990'),
    (('config.json', None), 'config.json should hold a JSON object; .*No such file'),
    (('tokenizer_config.json', None), 'tokenizer_config.json should .* save model and tokenizer'),
    (('vocabulary.model', None), 'copy it from there'),
  ],
)
def test_what_does_not_fit_or_is_missing_is_named(exported, tmp_path, changes, fact):
  refuses(exported[0], tmp_path / 'model', changes, fact)


def test_shards_are_read_as_one_file(exported, tmp_path):
  wanted = read_model(exported[0]).params
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  to_shards(folder, one=np.float32, two=np.float32)
  chex.assert_trees_all_equal(read_model(folder).params, wanted)
  (folder / WEIGHTS).write_bytes(b'')  # As for the library, one file comes first.
  with pytest.raises(UserError, match='should be a safetensors file'):
    read_model(folder)
  shutil.copy(exported[0] / WEIGHTS, folder / WEIGHTS)
  to_shards(folder, half=np.float16, brain=jnp.bfloat16, full=np.float32)
  back = read_model(folder).params
  chex.assert_trees_all_equal_dtypes(back, wanted)
  chex.assert_trees_all_close(back, wanted, rtol=2**-8, atol=1e-7)


NAME = 'model.shared.weight'


@pytest.mark.parametrize(
  ('index', 'fact'),
  [
    ({NAME: 'gone.safetensors'}, r'gone\.safetensors cannot be read: No such file.*; .* copy'),
    ({NAME: '../one.safetensors'}, r'one of \.\./one.safetensors and its index has model\.'),
    ({NAME: '/one.safetensors'}, r'one of /one.safetensors and its index has model\.'),
    ({NAME: ['one']}, r"\['one'\] cannot be read: No such file"),
    ({NAME: '..'}, 'cannot be read'),
    ({'model.none': 'one.safetensors'}, 'of one.safetensors and its index has model.none; restore'),
    (None, r'index\.json should name the file of each tensor'),
    (b'[', r'index\.json should hold a JSON object'),
    (b'{}', "an entry 'weight_map'"),
    (b'{"weight_map": {}}', f'should hold {NAME}'),
  ],
)
def test_shards_that_do_not_fit_their_index_are_refused(exported, tmp_path, index, fact):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  path = folder / f'{WEIGHTS}.index.json'
  to_shards(folder, index if isinstance(index, dict) else (), one=np.float32, two=np.float32)
  shutil.copy(folder / 'one.safetensors', tmp_path)
  if index is None:
    change_json(path, weight_map=['one.safetensors'])
  elif isinstance(index, bytes):
    path.write_bytes(index)
  refuses(folder, tmp_path / 'copy', {}, fact)


def test_a_tensor_in_two_shards_and_a_damaged_shard_are_refused(exported, tmp_path):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  to_shards(folder, one=np.float32, two=np.float32)
  one, two = (read_tensors(folder / f'{name}.safetensors')[1] for name in ('one', 'two'))
  name = min(one)
  write_tensors(folder / 'two.safetensors', two | {name: one[name]}, {})
  refuses(folder, tmp_path / 'twice', {}, f'of two.safetensors and its index has {name}; restore')
  content = (folder / 'one.safetensors').read_bytes()
  refuses(folder, tmp_path / 'short', ('one.safetensors', content[:-1]), 'or is damaged')


@pytest.mark.parametrize('number', [np.nan, np.inf])
def test_a_folder_that_is_not_finite_is_refused_without_advice_for_training(
  exported, tmp_path, number
):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  name = 'model.encoder.layers.1.fc2.bias'
  change_tensors(folder, **{name: lambda bias: np.append(bias[1:], np.float32(number))})
  for shards in ({}, {'one': np.float16, 'two': jnp.bfloat16}):
    if shards:
      to_shards(folder, **shards)
    with pytest.raises(UserError, match=f'holds NaN or infinity in {name}; ') as caught:
      load_huggingface(folder)
    assert 'learning rate' not in str(caught.value)


def test_without_safetensors_the_line_that_installs_it_is_told(monkeypatch):
  monkeypatch.setitem(sys.modules, 'safetensors', None)
  for module in ('safetensors_format', 'huggingface_tensors', 'huggingface_reading'):
    monkeypatch.delitem(sys.modules, f'transformer.tools.convert.{module}')
  with pytest.raises(UserError, match=r'safetensors.* -m pip install -r .*/requirements\.txt$'):
    importlib.import_module('transformer.tools.convert.huggingface_reading')


def test_positions_that_the_library_has_trained_come_back_as_learned_ones(export, vocabulary):
  folder, _, _ = export(norm='pre')
  assert read_model(folder).config.model.positions == 'sinusoidal'
  # Adam moves each number by its learning rate.
  steps = np.random.default_rng(0).choice(np.float32([-1e-5, 1e-5]), (1024, 14))
  change_tensors(folder, **{'model.encoder.embed_positions.weight': lambda table: table + steps})
  change_json(folder / 'tokenizer_config.json', model_max_length=1000)
  back = read_model(folder)
  assert (back.config.model.positions, back.config.model.max_positions) == ('learned', 1024)
  assert back.config.data.max_length == 1024 - DecodeConfig.max_extra_length
  moved, kept = (back.params[f'{name}_position']['table'] for name in ('source', 'target'))
  np.testing.assert_allclose(moved - kept, steps[:, np.argsort(ORDER)], rtol=0, atol=1e-7)
  np.testing.assert_array_equal(kept, sinusoidal_positions(1024, 14))
  params = jax.eval_shape(lambda: init_params(Transformer(back.config.model, vocabulary.size), 0))
  chex.assert_trees_all_equal_shapes(back.params, params)


def test_a_bias_that_the_library_has_trained_comes_back_and_other_tensors_are_refused(
  exported, tmp_path
):
  folder = shutil.copytree(exported[0], tmp_path / 'model')
  change_tensors(folder, final_logits_bias=lambda _: np.arange(285, dtype=np.float32)[None])
  np.testing.assert_array_equal(read_model(folder).params['output_bias'], np.arange(285))
  name = 'model.encoder.layers.0.self_attn.q_proj.lora_A.weight'
  change_tensors(folder, **{name: lambda _: np.ones((2, 14), np.float32)})
  with pytest.raises(UserError, match=rf'model holds {name}, for which'):
    read_model(folder)
