"""A folder holds the tensors of MarianMT or Pegasus, and other models are refused by name."""

import json

import numpy as np
import pytest

from tests.tools.convert.random_models import opinionated
from transformer.config import Config
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.tools.convert import tensor_file
from transformer.tools.convert.huggingface_format import WEIGHTS, check_model, write_model

SHAPE = {'num_layers': 1, 'model_dim': 6, 'ff_dim': 5, 'num_heads': 2}


VOCABULARY = Vocabulary.train(['ab ab'], 264)


def written(folder, **settings):
  config = Config(model=ModelConfig(**SHAPE, **settings))
  params = opinionated(Transformer(config.model, VOCABULARY.size))
  write_model(folder, config, params, VOCABULARY)
  return params, tensor_file.read(folder / WEIGHTS)[1]


def test_sines_come_before_cosines_and_missing_biases_are_zero(tmp_path):
  params, tensors = written(tmp_path)
  table = params['target_embedding']['table']
  np.testing.assert_array_equal(tensors['model.shared.weight'], table[:, [0, 2, 4, 1, 3, 5]])
  norm = params['encoder_0']['feed_forward_residual']['layer_norm']['bias']
  np.testing.assert_array_equal(tensors['model.encoder.layers.0.final_layer_norm.bias'],
                                norm[[0, 2, 4, 1, 3, 5]])
  assert not tensors['model.decoder.layers.0.encoder_attn.q_proj.bias'].any()
  assert not tensors['final_logits_bias'].any()
  assert tensors['final_logits_bias'].shape == (1, VOCABULARY.size)
  assert {each.dtype for each in tensors.values()} == {np.dtype(np.float32)}


def test_norms_before_the_sublayers_make_a_pegasus(tmp_path):
  params, tensors = written(tmp_path, norm='pre')
  order = [0, 2, 4, 1, 3, 5]
  for side in ('encoder', 'decoder'):
    for theirs, ours in ('weight', 'scale'), ('bias', 'bias'):
      np.testing.assert_array_equal(tensors[f'model.{side}.layer_norm.{theirs}'],
                                    params[f'{side}_norm'][ours][order])
  # The library adds the positions, so no residual sum may grow.
  np.testing.assert_array_equal(
      tensors['model.encoder.layers.0.fc2.weight'],
      params['encoder_0']['feed_forward']['outer']['kernel'][:, order].T)
  about = json.loads((tmp_path / 'config.json').read_bytes())
  assert about['model_type'] == 'pegasus' and 'decoder_vocab_size' not in about
  _, post = written(tmp_path)
  assert not any('decoder.layer_norm' in name for name in post)


def test_the_same_run_makes_the_same_files(tmp_path):
  for name in ('a', 'b'):
    (tmp_path / name).mkdir()
    written(tmp_path / name)
  names = sorted(path.name for path in (tmp_path / 'a').iterdir())
  assert names == ['config.json', 'generation_config.json', WEIGHTS, 'tokenizer.json',
                   'tokenizer_config.json']
  for name in names:
    assert (tmp_path / 'a' / name).read_bytes() == (tmp_path / 'b' / name).read_bytes()
  model = json.loads((tmp_path / 'a' / 'tokenizer.json').read_bytes())['model']
  assert model['merges'] == [['a', 'b']]


def test_the_bias_of_the_logits_is_one_row(tmp_path):
  params, tensors = written(tmp_path, output_bias=True, activation='silu')
  np.testing.assert_array_equal(tensors['final_logits_bias'], params['output_bias'][None])
  about = json.loads((tmp_path / 'config.json').read_bytes())
  assert about['activation_function'] == 'silu'


@pytest.mark.parametrize(('setting', 'value', 'named'), [
    ('rms_norm', True, 'rms_norm=True'),
    ('query_key_norm', True, 'query_key_norm=True'), ('positions', 'learned', 'positions=learned'),
    ('positions', 'rotary', 'positions=rotary'), ('positions', 'relative', 'positions=relative'),
    ('activation', 'swiglu', 'activation=swiglu'), ('key_dim', 32, 'key_dim=32'),
    ('value_dim', 128, 'value_dim=128')])
def test_other_models_are_refused_by_name(setting, value, named):
  check_model(ModelConfig())
  with pytest.raises(UserError, match=rf'^MarianMT cannot hold model\.{named}: .*safetensors$'):
    check_model(ModelConfig(**{setting: value}))


@pytest.mark.parametrize(('setting', 'value'), [
    ('share_embeddings', False), ('tie_output', False), ('rms_norm', True)])
def test_a_pegasus_has_one_table_and_layer_norm(setting, value):
  check_model(ModelConfig(norm='pre'))
  with pytest.raises(UserError, match=rf'^Pegasus cannot hold model\.{setting}={value}: '):
    check_model(ModelConfig(norm='pre', **{setting: value}))


@pytest.mark.parametrize(('norm', 'name'), [('post', 'MarianMT'), ('pre', 'Pegasus')])
def test_a_parameter_that_the_library_lacks_is_refused_by_name(tmp_path, norm, name):
  config = Config(model=ModelConfig(**SHAPE, norm=norm))
  params = opinionated(Transformer(config.model, VOCABULARY.size))
  attention, table = params['decoder_0']['cross_attention'], params['target_embedding']
  for part, added in (attention, 'sink'), (attention['query'], 'scale'), (params, 'gate'):
    part[added] = np.ones(2, np.float32)
    with pytest.raises(UserError, match=rf'^{name} has no place for .* run: [a-z_0.]*{added};'):
      write_model(tmp_path, config, params, VOCABULARY)
    del part[added]
  params['source_embedding'] = table  # The config says that the tables are shared.
  with pytest.raises(UserError, match=r'source_embedding\.table'):
    write_model(tmp_path, config, params, VOCABULARY)
  del params['source_embedding'], attention['output']
  with pytest.raises(UserError, match=r'needs the parameter decoder_0\.cross_attention\.output\.k'):
    write_model(tmp_path, config, params, VOCABULARY)
  assert not any(tmp_path.iterdir())
