"""A run that takes batches that fit, records their size, and keeps it."""

import dataclasses
import importlib.util
import json
import re

import pytest

from transformer import training_run
from transformer.config import Config
from transformer.errors import UserError
from transformer.training import device_memory, preflight
from transformer.training.preflight import Need

pytestmark = pytest.mark.long


MAX_LENGTH, ASKED, FITS = 64, 8 * 64, 4 * 64


@pytest.fixture(scope='module')
def config(folder):
  """Twice as much as fits: eight rows, on the four devices of these tests."""
  spec = importlib.util.spec_from_file_location('tiny', folder / 'tiny.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  config = Config.from_dict(module.get_config().to_dict())
  return dataclasses.replace(config, train=dataclasses.replace(
      config.train, tokens_per_batch=ASKED, fit_memory=True))


@pytest.fixture
def device(monkeypatch):
  """(rows) -> makes a device one that has room for so many."""
  def has(rows):
    def needs_of(state, *programs):
      return [Need(name, 1000 * int((re.search(r'(\d+) rows', name) or [0, 0])[1]), 0, 0, 0)
              for name, _, _ in programs]

    monkeypatch.setattr(preflight, 'needs_of', needs_of)
    monkeypatch.setattr(device_memory, 'capacity', lambda: 1000 * rows)
  return has


def recorded(workdir):
  settings = json.loads((workdir / 'config.json').read_text('utf-8'))['train']
  return settings['tokens_per_batch'], settings['fit_memory']


def test_the_size_found_is_recorded_and_kept(config, device, train, folder, tmp_path):
  workdir = tmp_path / 'run'
  device(7)
  strict = dataclasses.replace(config, train=dataclasses.replace(config.train, fit_memory=False))
  with pytest.raises(UserError, match=f'largest found to fit is train.tokens_per_batch={FITS}'):
    training_run.train_run(strict, workdir)
  assert not workdir.exists()
  training_run.train_run(config, workdir)
  assert recorded(workdir) == (FITS, True)
  kept = dataclasses.replace(config, train=dataclasses.replace(
      config.train, tokens_per_batch=FITS, steps=3))
  device(3)
  with pytest.raises(UserError, match=r'tokens_per_batch=256 needs .* the run was begun with it'):
    training_run.train_run(kept, workdir)

  # On a device that has more, by the same command.
  flags = (f'--config={folder}/tiny.py', f'--workdir={workdir}', '--config.train.steps=3',
           f'--config.train.tokens_per_batch={ASKED}')
  message = train.refuses(*flags)
  assert f'train.tokens_per_batch was {FITS}, is {ASKED}' in message
  status, _, err = train(*flags, '--config.train.fit_memory=True')
  assert status == 0, err
  assert f'the run keeps train.tokens_per_batch={FITS}, which it found to fit; asked for ' in err
  assert f'4 rows of {MAX_LENGTH} target positions a batch' in err
  assert recorded(workdir) == (FITS, True)
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  assert [json.loads(line)['step'] for line in lines] == [2, 2, 3, 3]
  # Or by a command that says the size.
  status, _, err = train(*flags[:3], f'--config.train.tokens_per_batch={FITS}')
  assert status == 0 and 'the run is done: step 3 of 3' in err, err
  assert 'preflight.py' not in err  # Nothing is compiled for a run that is done.
