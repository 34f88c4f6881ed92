"""Damage to a file of a run is named in one line, or training resumes from an earlier checkpoint.

DAMAGE_POSITIONS=16 pytest tests/robustness/test_damage.py
damages each file at 17 places. Damage to the
encoded text is tried in tests/data.
"""

import os

import jax
import numpy as np
import pytest

from tests.robustness.damage import DAMAGES, damaged, files_of
from tests.sentences import MIXED_WORDS
from transformer.config import Config
from transformer.data.config import SHARED_VOCABULARY
from transformer.errors import UserError
from transformer.experiment.train_loop import train_run
from transformer.runs import run_directory
from transformer.runs.loading import load_run

pytestmark = pytest.mark.long
POSITIONS = int(os.environ.get('DAMAGE_POSITIONS', '1'))


@pytest.fixture(scope='module')
def config(tmp_path_factory):
  """Returns the config of a run of four steps, on random words."""
  folder, rng = tmp_path_factory.mktemp('words'), np.random.default_rng(0)
  for split, count in (('train', 40), ('valid', 2)):
    for language in ('en', 'de'):
      lines = (' '.join(rng.choice(MIXED_WORDS, 5)) for _ in range(count))
      (folder / f'{split}.{language}').write_text(
        ''.join(f'{line}\n' for line in lines), 'utf-8'
      )
  return Config.from_dict(
    {
      'data': {
        'source': 'text',
        'dir': str(folder),
        'valid': 'valid',
        'test': 'valid',
        'target_language': 'de',
        'vocabulary_size': 300,
        'max_length': 64,
      },
      'model': {'num_layers': 1, 'model_dim': 8, 'ff_dim': 11, 'num_heads': 2},
      'train': {
        'tokens_per_batch': 4 * 64,
        'steps': 4,
        'checkpoint_every': 2,
        'eval_every': 4,
      },
      'decode': {'max_extra_length': 3, 'batch_size': 4},
    }
  )


@pytest.fixture(scope='module')
def run(config, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'run'
  train_run(config, workdir)
  return workdir


def raises_user_error(action, name, done):
  with pytest.raises(UserError) as error:
    action()
  assert '\n' not in str(error.value) and name in str(error.value), (
    done,
    str(error.value),
  )


def test_a_damaged_checkpoint_is_not_scored_and_training_takes_the_one_before(
  config, run, tmp_path
):
  copy, names = tmp_path / 'copy', files_of(run / 'checkpoints' / '4')
  for number, name in enumerate(names):
    for kind in DAMAGES if POSITIONS > 1 else [DAMAGES[number % len(DAMAGES)]]:
      for done in damaged(run, copy, f'checkpoints/4/{name}', kind, POSITIONS):
        raises_user_error(lambda: load_run(copy, 'latest'), name, done)
  train_run(config, copy)
  assert (copy / 'checkpoints' / '4.damaged').is_dir()
  for one, other in zip(
    *(jax.tree.leaves(load_run(workdir, 'latest').params) for workdir in (copy, run)),
    strict=True,
  ):
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
  'name', [run_directory.CONFIG, run_directory.RUN, *SHARED_VOCABULARY]
)
def test_a_damaged_description_is_neither_scored_nor_resumed(
  config, run, tmp_path, name
):
  copy = tmp_path / 'copy'
  for kind in ('flip', 'truncate', 'delete'):
    for done in damaged(run, copy, name, kind, POSITIONS):
      raises_user_error(lambda: load_run(copy, 'latest'), name, done)
      # A run that is done reads no vocabulary.
      if name == run_directory.RUN:
        raises_user_error(lambda: train_run(config, copy), name, done)
      elif name == run_directory.CONFIG and kind != 'delete':
        raises_user_error(lambda: run_directory.read_config_dict(copy), name, done)
