"""A run may take the weights or the vocabulary of another, if they fit."""

import dataclasses

import pytest

from transformer.errors import UserError
from transformer.experiment import wiring
from transformer.model.config import ModelConfig


@pytest.mark.parametrize('changes', [
    {'positions': 'rotary'}, {'activation': 'gelu'}, {'norm': 'pre'}, {'rms_norm': True},
    {'query_key_norm': True}, {'tie_output': False}, {'share_embeddings': False},
    {'num_heads': 4}, {'encoder_layers': 3}, {'key_dim': 5},
    {'attention_bias': 'all'}, {'positions': 'relative', 'ff_dim': 13}])
def test_a_run_does_not_start_from_a_different_model(changes):
  origin = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2)
  with pytest.raises(UserError) as refused:
    wiring._check_same_model(origin, dataclasses.replace(origin, **changes))
  message = str(refused.value)
  assert '\n' not in message and 'model.model_dim' not in message
  for name, value in changes.items():
    there = {'key_dim': 4, 'encoder_layers': 1}.get(name, getattr(origin, name))
    assert f'model.{name} is {there} there, and {value} here' in message


@pytest.mark.parametrize('changes', [
    {'dropout': 0.0}, {'word_dropout': 0.1}, {'decoder_layers': 1}, {'dtype': 'bfloat16'},
    {'remat': True}, {'key_dim': 4}, {'value_dim': 4},
    {'max_positions': 7}, {'attention': 'cudnn', 'dtype': 'bfloat16'}])
def test_settings_that_keep_the_meaning_of_parameters_may_differ(changes):
  width = {'key_dim': 8, 'value_dim': 8} if 'attention' in changes else {}
  origin = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2, **width)
  wiring._check_same_model(origin, dataclasses.replace(origin, **changes))


def test_learned_positions_must_have_the_same_number():
  learned = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2, positions='learned')
  with pytest.raises(UserError, match=r'model\.max_positions is 1024 there, and 7 here'):
    wiring._check_same_model(learned, dataclasses.replace(learned, max_positions=7))


def test_another_model_to_start_from_is_refused_before_anything_is_written(
    train, folder, trained, tmp_path):
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run',
                          f'--config.train.init_from={trained}', '--config.model.positions=rotary')
  assert 'model.positions is sinusoidal there, and rotary here; set what is there' in message
  assert not (tmp_path / 'run').exists()


def test_a_run_takes_a_vocabulary_that_there_is(train, folder, trained, tmp_path):
  config = (f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  given = trained / 'vocabulary.model'
  status, _, err = train(*config, f'--config.data.vocabulary={given}')
  assert status == 0 and 'training a vocabulary' not in err
  assert (tmp_path / 'run' / 'vocabulary.model').read_bytes() == given.read_bytes()
  # The run has its own copy, so it goes on without the file.
  status, _, err = train(*config, '--config.data.vocabulary=/gone')
  assert status == 0 and 'the run is done' in err


def test_a_vocabulary_that_does_not_fit_is_refused_before_anything_is_written(
    train, folder, trained, tmp_path):
  config = (f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  given = f'--config.data.vocabulary={trained}/vocabulary.model'
  for flags, fact in (
      ([given, '--config.data.vocabulary_size=299'], 'takes its vocabulary from data.vocabulary; '
       'set --config.data.vocabulary_size='),
      (['--config.data.vocabulary=/nowhere/x'], 'the vocabulary /nowhere/x cannot be read'),
      ([f'--config.data.vocabulary={trained}/run.json'], 'should hold a SentencePiece model'),
      ([given, f'--config.train.init_from={trained}'], 'data.vocabulary and train.init_from')):
    assert fact in train.refuses(*config, *flags)
  assert not (tmp_path / 'run').exists()
