"""A model becomes a folder of MarianMT or Pegasus and comes back; others are refused by name."""

import json
import shutil

import chex
import jax
import numpy as np
import pytest

from tests.tools.convert.random_models import change_tensors, opinionated, refuses
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert.huggingface_format import check_model, write_model
from transformer.tools.convert.huggingface_reading import read_model
from transformer.tools.convert.huggingface_tensors import WEIGHTS
from transformer.tools.convert.safetensors_format import read_tensors
from transformer.training.config import TrainConfig
from transformer.training.step import init_params

SHAPE = {'num_layers': 2, 'model_dim': 14, 'ff_dim': 22, 'num_heads': 2}
ORDER = [*range(0, 14, 2), *range(1, 14, 2)]  # All sines come before all cosines.
BACK = np.argsort(ORDER)
POSITIONS = 'model.{}.embed_positions.weight'
KINDS = {
    'published': {}, 'biases of outputs': {'attention_bias': 'output'},
    'all biases': {'attention_bias': 'all', 'dropout': 0.3, 'attention_dropout': 0.2},
    'deep encoder': {'num_layers': 3, 'decoder_layers': 1},
    'separate tables': {'share_embeddings': False, 'tie_output': False},
    'separate sources': {'share_embeddings': False}, 'separate output': {'tie_output': False},
    'gelu': {'activation': 'gelu'}, 'bias of the logits': {'output_bias': True},
    'norms before': {'norm': 'pre'}}


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
  back = read_model(folder)
  # Scaling there and back rounds once.
  chex.assert_trees_all_close(back.params, params, rtol=3e-7, atol=0)
  assert back.vocabulary.fingerprint == vocabulary.fingerprint
  assert (back.config.data.vocabulary_size, back.config.data.max_length) == (285, 37)
  assert back.config.decode.beam_size == 3
  for name in ('num_layers', 'decoder_depth', 'ff_dim', 'num_heads', 'activation', 'dropout',
               'attention_bias', 'attention_dropout', 'share_embeddings', 'tie_output', 'norm',
               'output_bias'):
    assert getattr(back.config.model, name) == getattr(config.model, name), name


def test_sines_come_before_cosines_and_missing_biases_are_zero(export, vocabulary):
  folder, _, params = export()
  tensors = read_tensors(folder / WEIGHTS)[1]
  np.testing.assert_array_equal(tensors['model.shared.weight'],
                                params['target_embedding']['table'][:, ORDER])
  norm = params['encoder_1']['feed_forward_residual']['layer_norm']['bias']
  np.testing.assert_array_equal(tensors['model.encoder.layers.1.final_layer_norm.bias'],
                                norm[ORDER])
  assert not tensors['model.decoder.layers.0.encoder_attn.q_proj.bias'].any()
  assert tensors['final_logits_bias'].shape == (1, vocabulary.size)
  assert not tensors['final_logits_bias'].any()
  assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}


def test_norms_before_the_sublayers_make_a_pegasus(export):
  folder, _, params = export(norm='pre')
  tensors = read_tensors(folder / WEIGHTS)[1]
  for side in ('encoder', 'decoder'):
    for theirs, ours in ('weight', 'scale'), ('bias', 'bias'):
      np.testing.assert_array_equal(tensors[f'model.{side}.layer_norm.{theirs}'],
                                    params[f'{side}_norm'][ours][ORDER])
  # The library adds the positions, so no residual sum may grow.
  np.testing.assert_array_equal(
      tensors['model.encoder.layers.1.fc2.weight'],
      params['encoder_1']['feed_forward']['outer']['kernel'][:, ORDER].T)
  about = json.loads((folder / 'config.json').read_bytes())
  assert about['model_type'] == 'pegasus' and 'decoder_vocab_size' not in about


def test_the_same_run_makes_the_same_files(export):
  first, second = export()[0], export()[0]
  names = sorted(path.name for path in first.iterdir())
  assert names == ['config.json', 'generation_config.json', WEIGHTS, 'tokenizer.json',
                   'tokenizer_config.json', 'vocabulary.model']
  for name in names:
    assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize(('base', 'setting', 'value'), [
    ('MarianMT', 'rms_norm', True), ('MarianMT', 'query_key_norm', True),
    ('MarianMT', 'positions', 'learned'), ('MarianMT', 'positions', 'rotary'),
    ('MarianMT', 'activation', 'swiglu'), ('MarianMT', 'key_dim', 32),
    ('MarianMT', 'value_dim', 128), ('Pegasus', 'share_embeddings', False),
    ('Pegasus', 'tie_output', False), ('Pegasus', 'rms_norm', True)])
def test_other_models_are_refused_by_name(base, setting, value):
  norm = {'MarianMT': 'post', 'Pegasus': 'pre'}[base]
  check_model(ModelConfig(norm=norm))
  with pytest.raises(UserError, match=rf'^{base} cannot hold model\.{setting}={value}: .*tensors$'):
    check_model(ModelConfig(**{'norm': norm, setting: value}))


@pytest.mark.parametrize(('norm', 'name'), [('post', 'MarianMT'), ('pre', 'Pegasus')])
def test_a_parameter_that_the_library_lacks_is_refused_by_name(tmp_path, vocabulary, norm, name):
  config = Config(model=ModelConfig(**SHAPE, norm=norm))
  params = opinionated(Transformer(config.model, vocabulary.size))
  attention = params['decoder_0']['cross_attention']
  # The config says that the tables are shared.
  for part, added in ((attention, 'sink'), (attention['query'], 'scale'), (params, 'gate'),
                      (params, 'source_embedding')):
    part[added] = np.ones(2, np.float32)
    with pytest.raises(UserError, match=rf'^{name} cannot hold [a-z_0.]*{added}: '):
      write_model(tmp_path, config, params, vocabulary)
    del part[added]
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(('changes', 'fact'), [
    ({'model_type': 'bart'}, 'model_type=bart, and this project can hold only marian or pegasus'),
    ({'decoder_start_token_id': 0}, 'decoder_start_token_id=0, and this project can hold only 1'),
    ({'normalize_embedding': True}, 'normalize_embedding=True'),
    ({'decoder_ffn_dim': 23}, 'decoder_ffn_dim=23, and this project can hold only 22'),
    ({'activation_function': 'tanh'}, 'activation_function=tanh, .* relu or gelu or silu or swish'),
    ({'decoder_layers': 3}, 'should hold model.decoder.layers.2.*; it holds none'),
    ({'d_model': 28}, 'should hold model.shared.weight with 7980 numbers, .*; it holds 3990'),
    ({'encoder_layers': None}, "config.json should have an entry 'encoder_layers'"),
    ('config.json', 'config.json should hold a JSON object; .*No such file'),
    (WEIGHTS, f'should hold its weights as {WEIGHTS}, .*pickles'),
    ('tokenizer_config.json', 'tokenizer_config.json should .* save model and tokenizer'),
    ('vocabulary.model', 'copy it from there')])
def test_what_does_not_fit_or_is_missing_is_named(exported, tmp_path, changes, fact):
  refuses(exported, tmp_path / 'model', changes, fact)


@pytest.mark.parametrize('side', ['encoder', 'decoder'])
def test_positions_that_the_library_has_trained_come_back_as_learned_ones(export, vocabulary, side):
  folder, _, _ = export(norm='pre')
  assert read_model(folder).config.model.positions == 'sinusoidal'
  # Adam moves each number by its learning rate.
  steps = np.random.default_rng(0).choice(np.float32([-1e-5, 1e-5]), (1024, 14))
  change_tensors(folder, **{POSITIONS.format(side): lambda table: table + steps})
  tokenizer = json.loads((folder / 'tokenizer_config.json').read_text('utf-8'))
  (folder / 'tokenizer_config.json').write_text(
      json.dumps(tokenizer | {'model_max_length': 1000}), 'utf-8')
  back = read_model(folder)
  assert (back.config.model.positions, back.config.model.max_positions) == ('learned', 1024)
  assert back.config.data.max_length == 1024 - DecodeConfig.max_extra_length
  tables = [back.params[f'{name}_position']['table'] for name in ('source', 'target')]
  moved = {'encoder': tables, 'decoder': tables[::-1]}[side]
  np.testing.assert_allclose(moved[0] - moved[1], steps[:, BACK], rtol=0, atol=1e-7)
  np.testing.assert_array_equal(moved[1], sinusoidal_positions(1024, 14))
  params = jax.eval_shape(lambda: init_params(
      Transformer(back.config.model, vocabulary.size), 0))
  chex.assert_trees_all_equal_shapes(back.params, params)


def test_positions_that_are_stored_with_fewer_bits_stay_sinusoids(export):
  folder, _, _ = export(norm='pre')
  change_tensors(folder, **{POSITIONS.format(side): lambda table: table.astype(np.float16)
                            for side in ('encoder', 'decoder')})
  assert read_model(folder).config.model.positions == 'sinusoidal'


def test_a_bias_that_the_library_has_trained_comes_back_and_other_tensors_are_refused(
    exported, tmp_path):
  folder = shutil.copytree(exported, tmp_path / 'model')
  change_tensors(folder, final_logits_bias=lambda _: np.arange(285, dtype=np.float32)[None])
  np.testing.assert_array_equal(read_model(folder).params['output_bias'], np.arange(285))
  name = 'model.encoder.layers.0.self_attn.q_proj.lora_A.weight'
  change_tensors(folder, **{name: lambda _: np.ones((2, 14), np.float32)})
  with pytest.raises(UserError, match=rf'model\.safetensors holds {name}, for which'):
    read_model(folder)
