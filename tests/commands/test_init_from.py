"""A run that starts from the weights of another has the same model, and says so otherwise."""

import dataclasses

import pytest

from transformer import training_run
from transformer.errors import UserError
from transformer.model.config import ModelConfig


@pytest.mark.parametrize('changes', [
    {'positions': 'rotary'}, {'activation': 'gelu'}, {'norm': 'pre'}, {'rms_norm': True},
    {'query_key_norm': True}, {'tie_output': False}, {'share_embeddings': False},
    {'num_heads': 4}, {'num_layers': 3}, {'key_dim': 5}, {'positions': 'relative', 'ff_dim': 13}])
def test_a_run_starts_from_no_other_model_whatever_its_shapes(changes):
  origin = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2)
  with pytest.raises(UserError) as refused:
    training_run._check_same_model(origin, dataclasses.replace(origin, **changes))
  message = str(refused.value)
  assert '\n' not in message and 'model.model_dim' not in message
  for name, value in changes.items():
    there = origin.head_key_dim if name == 'key_dim' else getattr(origin, name)
    assert f'model.{name} is {there} there, and {value} here' in message


@pytest.mark.parametrize('changes', [
    {'dropout': 0.0}, {'dtype': 'bfloat16'}, {'remat': True}, {'key_dim': 4}, {'value_dim': 4},
    {'max_positions': 7}, {'attention': 'cudnn', 'dtype': 'bfloat16'}])
def test_what_does_not_change_the_meaning_of_parameters_may_differ(changes):
  width = {'key_dim': 8, 'value_dim': 8} if 'attention' in changes else {}
  origin = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2, **width)
  training_run._check_same_model(origin, dataclasses.replace(origin, **changes))


def test_learned_positions_have_as_many_rows_as_there():
  learned = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2, positions='learned')
  with pytest.raises(UserError, match=r'model\.max_positions is 1024 there, and 7 here'):
    training_run._check_same_model(learned, dataclasses.replace(learned, max_positions=7))


def test_another_model_to_start_from_is_refused_before_anything_is_written(
    train, folder, trained, tmp_path):
  message = train.refuses(f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run',
                          f'--config.train.init_from={trained}', '--config.model.positions=rotary')
  assert 'model.positions is sinusoidal there, and rotary here; set what is there' in message
  assert not (tmp_path / 'run').exists()
