"""A run finds the size of batches that fit into memory, records it, and keeps it."""

import dataclasses
import importlib.util
import json

import pytest

from transformer.config import Config
from transformer.errors import UserError
from transformer.experiment.training import train_run
from transformer.training import memory_check

pytestmark = pytest.mark.long


MAX_LENGTH, ASKED, FITS = 64, 8 * 64, 4 * 64


@pytest.fixture(scope='module')
def config(folder):
  """Returns a config with batches of eight rows, twice as many as will fit."""
  spec = importlib.util.spec_from_file_location('tiny', folder / 'tiny.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  config = Config.from_dict(module.get_config().to_dict())
  return dataclasses.replace(config, train=dataclasses.replace(
      config.train, tokens_per_batch=ASKED, fit_memory=True))


@pytest.fixture
def device(monkeypatch):
  """Returns a function (rows) that sets the devices' memory to that of so many rows."""
  def has(rows):
    compile_ = memory_check._compile
    monkeypatch.setattr(memory_check, '_compile', lambda update, shape, capacity: (
        compile_(update, shape, capacity)[0], 1e12 * shape[0]))
    monkeypatch.setattr(memory_check, 'device_memory', lambda: int(1e12 * rows))
  return has


def recorded(workdir):
  settings = json.loads((workdir / 'config.json').read_text('utf-8'))['train']
  return settings['tokens_per_batch'], settings['fit_memory']


def test_the_size_found_is_recorded_and_kept(config, device, train, folder, tmp_path):
  workdir = tmp_path / 'run'
  device(7)
  strict = dataclasses.replace(config, train=dataclasses.replace(config.train, fit_memory=False))
  with pytest.raises(UserError, match=f'largest found to fit is train.tokens_per_batch={FITS}'):
    train_run(strict, workdir)
  assert not workdir.exists()
  train_run(config, workdir)
  assert recorded(workdir) == (FITS, True)
  kept = dataclasses.replace(config, train=dataclasses.replace(
      config.train, tokens_per_batch=FITS, steps=3))
  device(3)
  with pytest.raises(UserError, match=r'tokens_per_batch=256 needs .* the run was begun with it'):
    train_run(kept, workdir)

  # The same command on a device with more memory keeps the size.
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
  # So does a command with the recorded size.
  status, _, err = train(*flags[:3], f'--config.train.tokens_per_batch={FITS}')
  assert status == 0 and 'the run is done: step 3 of 3' in err, err
  assert 'memory_check.py' not in err  # A run that has ended compiles nothing.
