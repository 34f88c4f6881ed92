"""A MarianMT folder comes back as the model that was exported, and others are refused by name."""

import json
import shutil

import chex
import jax
import numpy as np
import pytest

from tests.tools.convert.random_models import opinionated
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert import tensor_file
from transformer.tools.convert.huggingface_format import WEIGHTS, write_model
from transformer.tools.convert.huggingface_reading import read_model
from transformer.training.config import TrainConfig
from transformer.training.step import init_params

SHAPE = {'num_layers': 2, 'model_dim': 14, 'ff_dim': 22, 'num_heads': 2}
KINDS = {
    'published': {}, 'biases of outputs': {'attention_bias': 'output'},
    'all biases': {'attention_bias': 'all', 'dropout': 0.3, 'attention_dropout': 0.2},
    'deep encoder': {'encoder_layers': 3, 'decoder_layers': 1},
    'separate tables': {'share_embeddings': False, 'tie_output': False},
    'separate sources': {'share_embeddings': False}, 'separate output': {'tie_output': False},
    'gelu': {'activation': 'gelu'}, 'silu': {'activation': 'silu'},
    'bias of the logits': {'output_bias': True}}


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(['a man in a red shirt', 'ein mann in rotem hemd'] * 3, 285)


@pytest.fixture(scope='module')
def export(vocabulary, tmp_path_factory):
  def export(**settings):
    folder = tmp_path_factory.mktemp('exported')
    config = Config(DataConfig(vocabulary_size=vocabulary.size, max_length=37),
                    ModelConfig(**SHAPE | settings), train=TrainConfig(tokens_per_batch=370),
                    decode=DecodeConfig(beam_size=3))
    params = opinionated(Transformer(config.model, vocabulary.size))
    write_model(folder, config, params, vocabulary)
    vocabulary.save(folder / 'vocabulary.model')
    return folder, config, params
  return export


@pytest.fixture(scope='module')
def exported(export):
  return export()[0]


@pytest.mark.parametrize('settings', KINDS.values(), ids=KINDS)
def test_a_model_comes_back(export, vocabulary, settings):
  folder, config, params = export(**settings)
  found = read_model(folder)
  # Scaling there and back rounds once.
  chex.assert_trees_all_close(found.params, params, rtol=3e-7, atol=0)
  assert found.vocabulary.fingerprint == vocabulary.fingerprint
  assert (found.config.data.vocabulary_size, found.config.data.max_length) == (285, 37)
  assert found.config.decode.beam_size == 3
  for name in ('encoder_depth', 'decoder_depth', 'ff_dim', 'num_heads', 'activation', 'dropout',
               'attention_bias', 'attention_dropout', 'share_embeddings', 'tie_output',
               'output_bias'):
    assert getattr(found.config.model, name) == getattr(config.model, name), name


@pytest.mark.parametrize(('changes', 'fact'), [
    ({'model_type': 'bart'}, 'model_type=bart, and this project can hold only marian and pegasus'),
    ({'decoder_start_token_id': 0}, 'decoder_start_token_id=0, and this project can hold only 1'),
    ({'normalize_embedding': True}, 'normalize_embedding=True'),
    ({'scale_embedding': False}, 'scale_embedding=False'),
    ({'decoder_ffn_dim': 23}, 'encoder_ffn_dim=22 and decoder_ffn_dim=23; this project has one'),
    ({'activation_function': 'tanh'},
     'activation_function=tanh; this project can hold relu or gelu or silu or swish'),
    ({'decoder_layers': 3}, 'should hold model.decoder.layers.2.'),
    ({'d_model': 28}, 'model.shared.weight in .* should have 7980 numbers, .* it has 3990'),
    ({'encoder_layers': None}, 'should describe a MarianMT model; it lacks encoder_layers')])
def test_a_model_that_does_not_fit_is_refused_by_name(exported, tmp_path, changes, fact):
  folder = shutil.copytree(exported, tmp_path / 'model')
  about = json.loads((folder / 'config.json').read_text('utf-8')) | changes
  about = {name: value for name, value in about.items() if value is not None}
  (folder / 'config.json').write_text(json.dumps(about), 'utf-8')
  with pytest.raises(UserError, match=fact) as caught:
    read_model(folder)
  assert '\n' not in str(caught.value)


def test_a_bias_that_the_library_has_trained_comes_back(exported, tmp_path):
  folder = shutil.copytree(exported, tmp_path / 'model')
  tensors = tensor_file.read(folder / WEIGHTS)[1]
  tensors['final_logits_bias'] = np.arange(285, dtype=np.float32)[None]
  tensor_file.write(folder / WEIGHTS, tensors, {'format': 'pt'})
  np.testing.assert_array_equal(read_model(folder).params['output_bias'], np.arange(285))


def change(folder, **changes):
  """Changes tensors of a folder, as training in the library does."""
  tensors = tensor_file.read(folder / WEIGHTS)[1]
  for name, new in changes.items():
    tensors[name] = new(tensors.get(name))
  tensor_file.write(folder / WEIGHTS, tensors, {'format': 'pt'})


POSITIONS = 'model.{}.embed_positions.weight'


@pytest.mark.parametrize('side', ['encoder', 'decoder'])
def test_positions_that_the_library_has_trained_come_back_as_learned_ones(export, vocabulary, side):
  folder, _, _ = export(norm='pre')
  assert read_model(folder).config.model.positions == 'sinusoidal'
  # Adam moves each number by its learning rate.
  steps = np.random.default_rng(0).choice(np.float32([-1e-5, 1e-5]), (1024, 14))
  change(folder, **{POSITIONS.format(side): lambda table: table + steps})
  found = read_model(folder)
  assert (found.config.model.positions, found.config.model.max_positions) == ('learned', 1024)
  tables = [found.params[f'{each}_position']['table'] for each in ('source', 'target')]
  moved = {'encoder': tables, 'decoder': tables[::-1]}[side]
  np.testing.assert_allclose(*moved, rtol=0, atol=1.1e-5)
  order = [0, 7, 1, 8, 2, 9, 3, 10, 4, 11, 5, 12, 6, 13]  # Sines and cosines alternate again.
  np.testing.assert_allclose(moved[0] - moved[1], steps[:, order], rtol=0, atol=1e-7)
  np.testing.assert_array_equal(moved[1], sinusoidal_positions(1024, 14))
  params = jax.eval_shape(lambda: init_params(
      Transformer(found.config.model, vocabulary.size), 0))
  chex.assert_trees_all_equal_shapes(found.params, params)


def test_a_source_may_be_as_long_as_the_trained_positions_allow(export):
  folder, _, _ = export(norm='pre')
  tokenizer = json.loads((folder / 'tokenizer_config.json').read_text('utf-8'))
  (folder / 'tokenizer_config.json').write_text(
      json.dumps(tokenizer | {'model_max_length': 1000}), 'utf-8')
  change(folder, **{POSITIONS.format('encoder'): lambda table: table + 1})
  data = read_model(folder).config.data
  assert data.max_length == 1024 - DecodeConfig.max_extra_length


@pytest.mark.parametrize('dtype', ['float16', 'float32'])
def test_positions_that_are_stored_with_fewer_bits_stay_sinusoids(export, dtype):
  folder, _, _ = export(norm='pre')
  change(folder, **{POSITIONS.format(side): lambda table: table.astype(dtype)
                    for side in ('encoder', 'decoder')})
  assert read_model(folder).config.model.positions == 'sinusoidal'


def test_tensors_that_the_model_lacks_are_refused_by_name(exported, tmp_path):
  folder = shutil.copytree(exported, tmp_path / 'model')
  name = 'model.encoder.layers.0.self_attn.q_proj.lora_A.weight'
  change(folder, **{name: lambda _: np.ones((2, 14), np.float32)})
  with pytest.raises(UserError, match=rf'model\.safetensors holds {name}, for which'):
    read_model(folder)


@pytest.mark.parametrize(('missing', 'fact'), [
    ('config.json', 'config.json cannot be read: No such file'),
    (WEIGHTS, f'should hold its weights as {WEIGHTS}; it holds config.json'),
    ('tokenizer_config.json', 'a folder needs config.json, .* save model and tokenizer'),
    ('vocabulary.model', 'copy it from there')])
def test_a_missing_file_is_named(exported, tmp_path, missing, fact):
  folder = shutil.copytree(exported, tmp_path / 'model')
  (folder / missing).unlink()
  with pytest.raises(UserError, match=fact):
    read_model(folder)


@pytest.mark.parametrize('content', ['{', '7'])
def test_a_damaged_description_is_named(exported, tmp_path, content):
  folder = shutil.copytree(exported, tmp_path / 'model')
  (folder / 'config.json').write_text(content)
  with pytest.raises(UserError, match=r'config\.json should hold .*JSON.*restore it from a copy'):
    read_model(folder)
