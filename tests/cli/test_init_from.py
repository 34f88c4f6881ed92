"""A run may take the weights or the vocabulary of another, if they fit."""

import dataclasses
import pathlib
import shutil

import jax
import numpy as np
import pytest

from tests.command_fixtures import ENGLISH, GERMAN
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.experiment.init_from import check_same_model, load_to_host
from transformer.model.config import ModelConfig
from transformer.runs.loading import load_run

ROOT = pathlib.Path(__file__).parents[2]
ORIGIN = ModelConfig(num_layers=1, model_dim=8, ff_dim=11, num_heads=2)


@pytest.mark.parametrize(
  'changes',
  [
    {'activation': 'gelu'},
    {'rms_norm': True},
    {'num_heads': 4},
    {'decoder_layers': 3},
    {'key_dim': 5},
    {'positions': 'relative', 'ff_dim': 13},
    {'max_positions': 7},
  ],
)
def test_a_run_does_not_start_from_a_different_model(changes):
  kind = 'learned' if 'max_positions' in changes else 'sinusoidal'
  origin = dataclasses.replace(ORIGIN, positions=kind)
  with pytest.raises(UserError) as rejected:
    check_same_model(origin, dataclasses.replace(origin, **changes))
  message = str(rejected.value)
  assert '\n' not in message and 'model.model_dim' not in message
  for name, value in changes.items():
    there = f'model.{name} is {getattr(origin, name)} there'
    assert f'{there}, and {value} here' in message


@pytest.mark.parametrize(
  'changes',
  [
    {'dropout': 0.0, 'remat': True},
    {'attention': 'cudnn', 'dtype': 'bfloat16'},
  ],
)
def test_settings_that_keep_the_meaning_of_parameters_may_differ(changes):
  width = {'key_dim': 8, 'value_dim': 8} if 'attention' in changes else {}
  origin = dataclasses.replace(ORIGIN, **width)
  check_same_model(origin, dataclasses.replace(origin, **changes))


def test_an_incompatible_run_is_rejected_before_anything_is_written(
  train, folder, trained, tmp_path
):
  leaves = jax.tree.leaves(load_to_host(trained).params)  # No device keeps them.
  assert leaves and all(isinstance(leaf, np.ndarray) for leaf in leaves)
  config = (f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  origin = f'--config.train.init_from={trained}'
  given = f'--config.data.vocabulary={trained}/vocabulary.model'
  for flags, fact in (
    (
      [origin, '--config.model.positions=rotary'],
      'model.positions is sinusoidal there, and rotary here',
    ),
    (
      [given, '--config.data.vocabulary_size=299'],
      'vocabulary comes from data.vocabulary; set --config.data.vocabulary_size=',
    ),
    (
      ['--config.data.vocabulary=/nowhere/x'],
      'the vocabulary /nowhere/x cannot be read',
    ),
    ([f'--config.data.vocabulary={trained}/run.json'], 'is not a SentencePiece model'),
    (
      [origin, '--config.data.vocabulary_size=299'],
      'from train.init_from; set --config.data.vocabulary_size=300; got 299',
    ),
  ):
    assert fact in train.rejects(*config, *flags)
  assert not (tmp_path / 'run').exists()


@pytest.mark.long
def test_a_run_keeps_the_vocabulary_that_it_was_given(train, folder, tmp_path):
  Vocabulary.train((ENGLISH + GERMAN) * 3, 290).save(tmp_path / 'own.model')
  flags = (
    f'--config={folder}/tiny.py',
    f'--workdir={tmp_path}/run',
    f'--config.data.vocabulary={tmp_path}/own.model',
  )
  assert 'set --config.data.vocabulary_size=290; got 300' in train.rejects(*flags)
  status, _, err = train(*flags, '--config.data.vocabulary_size=290')
  assert status == 0, err
  # The run has a copy, so it resumes without the file.
  (tmp_path / 'own.model').unlink()
  status, _, err = train(f'--workdir={tmp_path}/run')
  assert status == 0 and 'the run is done' in err, err
  assert 'data.vocabulary' in train.rejects(
    *flags[:2],
    '--config.data.vocabulary_size=290',
    '--config.data.vocabulary=/another.model',
  )


@pytest.mark.long
def test_a_run_starts_from_another_with_the_vocabulary_on_the_page(
  train, folder, trained, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  shutil.copytree(trained, 'RUN')
  larger = Vocabulary.train(ENGLISH + GERMAN + ['täglich vierzig Milligramm'] * 9, 320)
  larger.save('new.model')
  page = (ROOT / 'docs' / 'vocabulary.md').read_text('utf-8')
  code = page.partition('`new_vocabulary.py`')[2].partition('```python\n')[2]
  exec(code.partition('```')[0], {})
  before, after = load_run('RUN'), load_run('RUN_NEW')
  old, new = (run.params['target_embedding']['table'] for run in (before, after))
  pieces = [before.vocabulary.target.piece(token) for token in range(300)]
  kept = [token for token in range(320) if larger.piece(token) in pieces]
  assert after.vocabulary.target.fingerprint == larger.fingerprint
  assert 260 < len(kept) < 320
  for token in kept:
    np.testing.assert_array_equal(new[token], old[pieces.index(larger.piece(token))])
  config = (f'--config={folder}/tiny.py', f'--workdir={tmp_path}/run')
  size = '--config.data.vocabulary_size=320'

  def start(name, steps, *flags):
    origin = f'--config.train.init_from={tmp_path}/{name}'
    return *config, size, origin, f'--config.train.steps={steps}', *flags

  given = f'--config.data.vocabulary={tmp_path}/new.model'
  assert 'vocabulary comes from train.init_from' in train.rejects(
    *start('RUN', 1, given)
  )
  status, _, err = train(*start('RUN_NEW', 1))
  assert status == 0, err
  assert load_run('run').vocabulary.target.fingerprint == larger.fingerprint
  # The origin may move, and may not be another.
  shutil.copytree('RUN_NEW', 'MOVED')
  status, _, err = train(*start('MOVED', 2))
  assert status == 0 and 'the run is done' in err, err
  message = train.rejects(*start('run', 3))
  assert 'was started with a different train.init_from' in message
