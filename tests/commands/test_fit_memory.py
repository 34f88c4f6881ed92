"""A run finds the size of batches that fit into memory, records it, and keeps it."""

import dataclasses
import json
import runpy

import pytest

from transformer.config import Config
from transformer.errors import UserError
from transformer.experiment.training import train_run
from transformer.training import memory_check


def recorded(workdir):
  settings = json.loads((workdir / 'config.json').read_text('utf-8'))['train']
  return settings['tokens_per_batch'], settings['fit_memory']


@pytest.mark.long
def test_the_size_that_fits_is_recorded_and_kept(train, folder, tmp_path, monkeypatch):
  def has(rows):
    """Sets the devices' memory to that of so many rows."""
    compile_ = memory_check._compile
    monkeypatch.setattr(
      memory_check,
      '_compile',
      lambda update, shape, capacity: (compile_(update, shape, capacity)[0], 1e12 * shape[0]),
    )
    monkeypatch.setattr(memory_check, 'device_memory', lambda: int(1e12 * rows))

  def changed(**settings):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **settings))

  workdir, wanted, fits = tmp_path / 'run', 8 * 64, 4 * 64
  config = Config.from_dict(runpy.run_path(str(folder / 'tiny.py'))['get_config']().to_dict())
  has(7)
  with pytest.raises(UserError, match=f'tokens_per_batch={wanted} needs .*fit_memory=True'):
    train_run(changed(tokens_per_batch=wanted), workdir)
  assert not workdir.exists()
  (tmp_path / 'told.py').write_text("""
class Told:
  def __init__(self, config, workdir, step):
    (workdir / 'told').write_text(str(config.train.tokens_per_batch))
""")
  monkeypatch.syspath_prepend(tmp_path)
  train_run(changed(tokens_per_batch=wanted, fit_memory=True, report=('told:Told',)), workdir)
  assert recorded(workdir) == (fits, True)
  assert (workdir / 'told').read_text() == str(fits)
  has(3)
  with pytest.raises(UserError, match=r'tokens_per_batch=256 needs .* use more devices$'):
    train_run(changed(tokens_per_batch=fits, fit_memory=True, steps=3), workdir)

  # The same command on a device with more memory keeps the size.
  flags = (
    f'--config={folder}/tiny.py',
    f'--workdir={workdir}',
    '--config.train.steps=3',
    f'--config.train.tokens_per_batch={wanted}',
  )
  message = train.refuses(*flags)
  assert f'train.tokens_per_batch was {fits}, is {wanted}' in message
  status, _, err = train(*flags, '--config.train.fit_memory=True')
  assert status == 0, err
  assert f'the run keeps train.tokens_per_batch={fits}, which it found to fit; asked for ' in err
  assert f'4 rows of {64} target positions a batch' in err
  assert recorded(workdir) == (fits, True)
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  assert [json.loads(line)['step'] for line in lines] == [2, 2, 3, 3]
  # So does a command with the recorded size.
  status, _, err = train(*flags[:3], f'--config.train.tokens_per_batch={fits}')
  assert status == 0 and 'the run is done: step 3 of 3' in err, err
  assert 'memory_check.py' not in err  # A run that has ended compiles nothing.
