"""A run whose text comes from a source of one's own."""

import csv
import os
import subprocess
import sys

import pytest

from tests.running_commands import CONFIG, ENGLISH, GERMAN, ROOT
from transformer import files

SOURCE = """
import csv
import hashlib
import pathlib

class Table:
  def __init__(self, data, split):
    text = pathlib.Path(data.dir, f'{split}.csv').read_text('utf-8')
    self._pairs = [tuple(row) for row in csv.reader(text.splitlines())]
    self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

  def __len__(self):
    return len(self._pairs)

  def __getitem__(self, pairs):
    return self._pairs[pairs]
"""


@pytest.fixture
def run_here(tmp_path):
  """Makes tables, a source and a config; returns a function that runs a command beside them."""
  pairs = list(zip(ENGLISH, GERMAN, strict=True))
  for name, rows in (('train', pairs * 3), ('valid', pairs[:2]), ('test', pairs[2:])):
    with (tmp_path / f'{name}.csv').open('w', encoding='utf-8') as file:
      csv.writer(file).writerows(rows)
  (tmp_path / 'my_tables.py').write_text(SOURCE, 'utf-8')
  (tmp_path / 'tiny.py').write_text(CONFIG.format(folder=str(tmp_path)), 'utf-8')

  def run(command, *arguments):
    done = subprocess.run([sys.executable, ROOT / command, '--workdir=run', *arguments],
                          cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, 'JAX_PLATFORMS': 'cpu'})
    return done.returncode, done.stdout, done.stderr

  return run


@pytest.mark.long
def test_a_run_trains_on_its_own_source_and_needs_it_for_that_alone(run_here, tmp_path):
  config = '--config=tiny.py', '--config.data.source=my_tables:Table'
  os.rename(tmp_path / 'valid.csv', tmp_path / 'valid')
  status, _, err = run_here('train.py', *config, '--check')
  assert status == 1 and "split 'valid', cannot be opened: FileNotFoundError" in err
  os.rename(tmp_path / 'valid', tmp_path / 'valid.csv')
  status, _, err = run_here('train.py', *config)
  assert status == 0, err
  status, out, err = run_here('eval.py')
  assert status == 0 and 'BLEU' in out, err

  with (tmp_path / 'my_tables.py').open('a', encoding='utf-8') as module:
    module.write('# Another digest.\n')
  status, _, err = run_here('train.py', '--config.train.steps=3')
  assert status == 0 and 'the module of my_tables:Table has changed since' in err, err
  about = files.read_sealed(tmp_path / 'run' / 'run.json', 'the record')
  before, after = (session['own_code']['my_tables:Table']
                   for session in (about, about['resumed'][0]))
  assert len(before) == len(after) == 64 and before != after

  (tmp_path / 'my_tables.py').unlink()
  (tmp_path / 'text').write_text(f'{ENGLISH[0]}\n', 'utf-8')
  status, out, err = run_here('eval.py', '--source=text')
  assert status == 0 and len(out.splitlines()) == 1, err
  status, _, err = run_here('eval.py')
  assert status == 1 and 'error: the source my_tables:Table cannot be imported' in err
