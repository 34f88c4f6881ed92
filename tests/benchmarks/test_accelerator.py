"""`benchmarks/accelerator.py` resumes where it stopped, and needs few packages."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[2] / 'benchmarks'))

from accelerator_parts import packed_runs, subprocesses
from accelerator_parts.results_file import ResultsFile
from accelerator_parts.sections import sections
from accelerator_parts.tables import tables

from transformer import files
from transformer.config import Config
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.model.transformer import Transformer, init_params
from transformer.runs.loading import load_run, save_run

ROOT = pathlib.Path(__file__).parents[2]
# What a machine for benchmarks may lack.
ABSENT = (
  'ml_collections',
  'grain',
  'tensorflow_datasets',
  'importlib_resources',
  'sacrebleu',
  'sacremoses',
  'tensorboardX',
  'tqdm',
  'matplotlib',
  'PIL',
)
BARE = f"""
import sys
class Finder:
  def __init__(self, finder):
    self._finder = finder
  def find_spec(self, name, path=None, target=None):
    if name.split('.')[0] in {ABSENT!r}:
      return None
    return self._finder.find_spec(name, path, target)
  def __getattr__(self, name):
    return getattr(self._finder, name)
sys.meta_path[:] = map(Finder, sys.meta_path)
"""


@pytest.fixture
def bare(tmp_path):
  """The environment of a machine that has only what the benchmark needs."""
  site = tmp_path / 'site'
  site.mkdir()
  (site / 'sitecustomize.py').write_text(BARE, encoding='utf-8')
  return {**os.environ, 'PYTHONPATH': str(site), 'JAX_PLATFORMS': 'cpu'}


def accelerator(*flags, environment=None):
  done = subprocess.run(
    [sys.executable, 'benchmarks/accelerator.py', *flags],
    cwd=ROOT,
    text=True,
    capture_output=True,
    env=environment,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


def measured(rows, error=None):
  return {
    'rows': rows,
    'error': error,
    'seconds': 1.0,
    'machine': 'a',
    'versions': 'b',
    'commit': 'c',
    'time': 'd',
  }


def test_measurements_need_few_packages(bare):
  modules = sorted(
    {f'accelerator_parts.{section.module}' for section in sections('full')}
  )
  code = f'import {", ".join(modules)}, baselines, this_project, workload'
  done = subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT / 'benchmarks',
    text=True,
    capture_output=True,
    env={**bare, 'PYTHONPATH': f'{bare["PYTHONPATH"]}{os.pathsep}{ROOT}'},
  )
  assert not done.returncode, done.stderr


def test_a_results_file_keeps_earlier_results(tmp_path):
  path = tmp_path / 'all.json'
  ResultsFile(path, 'full').add('one', **measured([{'x': 1}]))
  again = ResultsFile(path, 'full')
  again.add('two', **measured([{'x': 2}], 'it failed'))
  last = ResultsFile(path, 'full')
  assert last.sections['one']['rows'] == [{'x': 1}] and last.sections['two'][
    'rows'
  ] == [{'x': 2}]
  assert [last.is_done(name) for name in ('one', 'two', 'three')] == [True, True, False]
  assert [last.is_done(name, retry=True) for name in ('one', 'two')] == [True, False]
  last.add('three', **measured([{'x': 1}, {'error': 'no memory'}]))
  assert last.is_done('three') and not last.is_done('three', retry=True)
  # A retry that finds less changes nothing.
  last.add('three', **measured([], 'it failed'))
  assert last.sections['three']['rows'] == [{'x': 1}, {'error': 'no memory'}]
  with pytest.raises(UserError, match='--size=full'):
    ResultsFile(path, 'toy')
  for content in ('[]', '{', '{"size": "toy"}'):
    path.write_text(content)
    with pytest.raises(UserError, match='should hold measurements'):
      ResultsFile(path, 'toy')


def script(tmp_path, body):
  """Returns the command of a section that writes a row and then runs `body`."""
  path = tmp_path / 'section.py'
  path.write_text(
    textwrap.dedent("""
      import subprocess, sys
      with open(sys.argv[1].removeprefix('--rows='), 'w') as file:
        file.write('{"x": 1}\\n')
      """)
    + textwrap.dedent(body)
  )
  return [sys.executable, str(path)]


@pytest.mark.parametrize(
  ('body', 'error'),
  [
    ('', None),
    ('sys.exit("no memory")', 'status 1: no memory'),
    (
      'subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])',
      'it took longer than 2 s',
    ),
  ],
)
def test_a_section_that_fails_or_takes_too_long_keeps_its_rows(tmp_path, body, error):
  found = subprocesses.measure(script(tmp_path, body), 2 if 'time' in body else 60)
  assert (
    found['rows'] == [{'x': 1}] and found['error'] == error and found['seconds'] < 60
  )


def test_a_call_skips_sections_that_exceed_its_time(tmp_path):
  path = tmp_path / 'all.json'
  first, *others = [section.name for section in sections('toy')]
  ResultsFile(path, 'toy').add(first, **measured([]))
  before = path.read_bytes()
  out = accelerator(f'--out={path}', '--size=toy', '--minutes=0.1')
  assert out.splitlines()[-1] == f'left for another call: {"; ".join(others)}'
  assert path.read_bytes() == before


def test_tables_have_the_numbers_of_both_systems():
  training_step = {
    'rows': 8,
    'length': 16,
    'least': 0.009,
    'most': 0.012,
    'device_bytes': 2e9,
    'loss': 6,
  }
  ours = {
    **training_step,
    'seconds': 0.01,
    'tokens_per_second': 12_800.0,
    'utilization': 0.4,
  }
  theirs = {
    **training_step,
    'seconds': 0.013,
    'tokens_per_second': 9846.0,
    'utilization': None,
  }
  found = {
    'training steps, base': measured(
      [ours, {'rows': 9, 'length': 16, 'error': 'no | memory'}]
    ),
    'training steps, base, PyTorch': measured([theirs]),
    'training steps, base, reproducible': measured([{**ours, 'seconds': 0.02}]),
    'searches': measured([], 'it took longer than 5 s'),
  }
  text = tables({'size': 'full', 'sections': found})
  assert (
    '| base | 8 × 16 | 10 ms | 9 … 12 ms | 12,800 | 40.0% | 2.0 GB | 13 ms | – | 1.30 × |'
    in text
  )
  assert '| base | 8 × 16 | 10 ms | 20 ms | 2.00 × |' in text
  assert '| searches | it took longer than 5 s |' in text
  assert r'| training steps, base: rows 9, length 16 | no \| memory |' in text
  for table in text.split('\n\n'):
    assert len({line.replace(r'\|', '').count('|') for line in table.splitlines()}) <= 1
  assert 'Waiting for data' not in text


@pytest.mark.long
def test_everything_runs_at_toy_size_on_a_bare_machine(tmp_path, bare):
  path = tmp_path / 'all.json'
  out = accelerator(f'--out={path}', '--size=toy', '--minutes=60', environment=bare)
  assert 'left for' not in out
  found = json.loads(path.read_text('utf-8'))['sections']
  assert list(found) == [section.name for section in sections('toy')]
  for name, section in found.items():
    if name.endswith('PyTorch') and "No module named 'torch'" in (
      section['error'] or ''
    ):
      continue
    assert section['error'] is None and section['rows'], (name, section)
    assert all('error' not in row for row in section['rows']), section['rows']
  assert all(
    row['agrees'] and row.get('empty_are_zero', True)
    for row in found['attention']['rows']
  )
  assert all(row['empty_queries'] for row in found['attention']['rows'][:-1])
  text = accelerator(f'--tables={path}')
  assert 'Failures' not in text or 'PyTorch' in text
  assert text.count('####') >= 5
  before = path.read_bytes()
  accelerator(f'--out={path}', '--size=toy', environment=bare)
  assert path.read_bytes() == before


def test_weights_round_trip_as_bfloat16(tmp_path, monkeypatch):
  vocabulary = Vocabulary.train(['a dog and a man', 'ein hund und ein mann'] * 9, 280)
  # A run that was trained on a GPU, whose kernels this machine lacks.
  config = Config.from_dict(
    {
      'model': {
        'num_layers': 1,
        'model_dim': 16,
        'ff_dim': 12,
        'num_heads': 2,
        'dtype': 'bfloat16',
        'attention': 'cudnn',
      },
      'train': {'ema_decay': 0.9},
    }
  )
  params = jax.device_get(init_params(Transformer(config.model, vocabulary.size), 0))
  # Half way between two numbers of bfloat16, so it is rounded to the even one.
  tie = np.float32(1 + 3 / 256)
  params = jax.tree.map(
    lambda x: np.append(x.ravel()[1:], tie).reshape(x.shape), params
  )
  save_run(tmp_path / 'runs' / 'tiny-0', config, vocabulary, params, [3])
  run = packed_runs.PlannedRun('tiny-0', config.to_dict(), 'best', 1)
  monkeypatch.setattr(packed_runs, '_PART', 3000)
  lost = run._replace(name='lost')
  collected = packed_runs.collect_weights(
    [run, lost], tmp_path / 'runs', tmp_path / 'out'
  )
  assert (
    'weights of step 3' in collected['tiny-0']
    and collected['lost'] == 'it has no checkpoint'
  )
  assert len(list((tmp_path / 'out').glob('runs.*'))) > 1
  assert all(part.stat().st_size <= 3000 for part in (tmp_path / 'out').iterdir())
  (found,) = packed_runs.unpack(tmp_path / 'out', tmp_path / 'back')
  rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), params)
  again = load_run(found)
  chex.assert_trees_all_equal(jax.device_get(again.params), jax.device_get(rounded))
  assert again.config == Config.from_dict(run.config) and again.checkpoint_steps == [3]
  assert (found / 'trained' / 'run.json').exists()
  with pytest.raises(UserError, match='exists already'):
    packed_runs.unpack(tmp_path / 'out', tmp_path / 'back')


def test_text_keeps_its_folders_and_there_need_not_be_a_test(tmp_path):
  prefixes = ('one/train', 'other/train', 'valid')
  for number, prefix in enumerate(prefixes):
    (tmp_path / prefix).parent.mkdir(parents=True, exist_ok=True)
    for language in ('en', 'de'):
      (tmp_path / f'{prefix}.{language}').write_text(f'{number}{language}\n')
  config = Config.from_dict(
    {
      'data': {
        'source': 'text',
        'dir': str(tmp_path),
        'train': prefixes[:2],
        'valid': 'valid',
        'test': '',
        'target_language': 'de',
      }
    }
  )
  packed_runs.pack(tmp_path / 'packed', config, 'two', 1, 'best', 1)
  data = tmp_path / 'packed' / 'data' / 'two'
  for number, prefix in enumerate(prefixes):
    assert (data / f'{prefix}.de').read_text() == f'{number}de\n'


@pytest.mark.long
def test_packed_runs_are_trained_and_brought_back(tmp_path, folder):
  def carry(*flags):
    done = subprocess.run(
      [sys.executable, 'benchmarks/pack_runs.py', *flags],
      cwd=ROOT,
      text=True,
      capture_output=True,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()

  packed, out = tmp_path / 'packed', tmp_path / 'out'
  carry(
    f'--pack={packed}',
    f'--config={folder}/tiny.py',
    '--seeds=2',
    '--checkpoint=latest',
    '--average=2',
  )
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'TMPDIR': str(tmp_path)}
  accelerator(
    f'--train={packed}', f'--out={out}', '--minutes=30', environment=environment
  )
  report = json.loads((out / packed_runs.REPORT).read_text('utf-8'))['runs']
  assert list(report) == ['tiny-0', 'tiny-1']
  for run in report.values():
    assert run['training'] == 'done' and run['test'].startswith('scored'), report
    assert run['weights'].startswith('weights of step 2')
  found = [
    pathlib.Path(place) for place in carry(f'--unpack={out}', f'--runs={tmp_path}/back')
  ]
  assert [load_run(place).checkpoint_steps for place in found] == [[2], [2]]
  assert [load_run(place).config.seed for place in found] == [0, 1]
  assert list((found[0] / 'trained' / 'eval').iterdir())
  assert files.read_sealed(found[0] / 'trained' / 'run.json', 'the record')['counts']
