"""A run trains on a custom source, and needs it only for training."""

import csv
import json
import math
import os
import shutil
import subprocess
import sys

import pytest

from tests.command_fixtures import CONFIG, ENGLISH, GERMAN, ROOT
from transformer import files


@pytest.mark.long
def test_a_run_needs_its_custom_source_only_for_training(doc_plugins, tmp_path):
  def run_here(command, *arguments):
    done = subprocess.run(
      [sys.executable, ROOT / command, '--workdir=run', *arguments],
      cwd=tmp_path,
      capture_output=True,
      text=True,
      check=False,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    )
    return done.returncode, done.stdout, done.stderr

  pairs = list(zip(ENGLISH, GERMAN, strict=True))
  for name, rows in (('train', pairs * 3), ('valid', pairs[:2]), ('test', pairs[2:])):
    with (tmp_path / f'{name}.csv').open('w', encoding='utf-8') as file:
      csv.writer(file).writerows(rows)
  shutil.copy(doc_plugins / 'my_tables.py', tmp_path)
  (tmp_path / 'tiny.py').write_text(CONFIG.format(folder=str(tmp_path)), 'utf-8')
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
  before, after = (
    session['plugins']['my_tables:Table'] for session in (about, about['resumed'][0])
  )
  assert len(before) == len(after) == 64 and before != after

  (tmp_path / 'my_tables.py').unlink()
  (tmp_path / 'text').write_text(f'{ENGLISH[0]}\n', 'utf-8')
  status, out, err = run_here('eval.py', '--source=text')
  assert status == 0 and len(out.splitlines()) == 1, err
  status, _, err = run_here('eval.py')
  assert status == 1 and 'error: the source my_tables:Table cannot be imported' in err


@pytest.mark.long
def test_a_loss_without_a_finite_gradient_is_found_as_the_page_shows(
  folder, doc_plugins, tmp_path
):
  code = (doc_plugins / 'my_losses.py').read_text('utf-8')
  wrong = code.replace(
    '** gamma * nll_BT', '** gamma * nll_BT + jnp.sqrt(0.0 * nll_BT)'
  )
  (tmp_path / 'my_losses.py').write_text(wrong, 'utf-8')
  page = (ROOT / 'docs' / 'recipes.md').read_text('utf-8')
  program = (
    page.partition('`find_nan.py`')[2].partition('```python\n')[2].partition('```')[0]
  )
  (tmp_path / 'find_nan.py').write_text(program, 'utf-8')
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)}

  def error_of(*command):
    done = subprocess.run(
      [sys.executable, *command],
      cwd=tmp_path,
      env=environment,
      capture_output=True,
      text=True,
      check=False,
    )
    assert done.returncode == 1
    return done.stderr

  message = error_of(
    ROOT / 'train.py',
    f'--config={folder}/tiny.py',
    '--workdir=runs/mine',
    '--config.train.objective=my_losses:focal',
  ).splitlines()[-1]
  assert 'bad_batches/1.npz; lower the learning rate' in message
  assert 'docs/recipes.md' in message
  assert (
    'my_losses.py' in (found := error_of('find_nan.py')) and 'jnp.sqrt(0.0' in found
  )


OWN_MODEL = '''
import jax.numpy as jnp
from my_heads import TemperedTransformer

class Balanced(TemperedTransformer):
  """Has an auxiliary loss of 3 / 4 in two parts of one name."""

  def __call__(self, *batch, deterministic=True):
    for _ in range(2):
      self.sow('losses', 'balance', jnp.float32(0.375))
    return super().__call__(*batch, deterministic=deterministic)

  flops = None  # It counts none.
'''


@pytest.mark.long
def test_a_run_has_its_own_model_attention_and_search(folder, doc_plugins, tmp_path):
  def run_here(command, *arguments):
    done = subprocess.run(
      [sys.executable, ROOT / command, '--workdir=run', *arguments],
      cwd=tmp_path,
      capture_output=True,
      text=True,
      check=False,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  for name in ('my_heads.py', 'my_attentions.py', 'my_searches.py'):
    shutil.copy(doc_plugins / name, tmp_path)
  (tmp_path / 'my_balance.py').write_text(OWN_MODEL, 'utf-8')
  model = "('my_balance:Balanced', {'first': 1.5})"
  config = (
    f'--config={folder}/tiny.py',
    f'--config.model.module={model}',
    '--config.model.attention=my_attentions:cosine',
    '--config.decode.search=my_searches:diverse',
    '--config.train.label_smoothing=0.0',
  )
  run_here('train.py', *config, '--check')
  run_here('train.py', *config)
  metrics = (tmp_path / 'run/metrics.jsonl').read_text('utf-8')
  lines = [json.loads(line) for line in metrics.splitlines()]
  trained = [line for line in lines if 'train/loss' in line]
  assert all(line['train/balance'] == pytest.approx(0.75) for line in trained)
  for line in trained:
    nll = math.log(line['train/perplexity'])
    assert line['train/loss'] == pytest.approx(nll + 0.75, abs=1e-4)
  valid = next(line for line in lines if 'valid/loss' in line)
  assert math.exp(valid['valid/loss']) == pytest.approx(
    valid['valid/perplexity'], rel=1e-4
  )

  about = files.read_sealed(tmp_path / 'run' / 'run.json', 'the record')
  assert {'my_balance:Balanced', 'my_attentions:cosine', 'my_searches:diverse'} <= (
    about['plugins'].keys()
  )
  assert about['flops_per_step'] is None
  run_here('train.py', '--config.train.steps=3')  # It resumes.
  before = run_here('eval.py', f'--source={folder}/test.en', '--beam_size=3')
  other = run_here(
    'eval.py',
    f'--source={folder}/test.en',
    '--beam_size=3',
    "--search=('my_searches:diverse', 0.5)",
  )
  assert before == other and len(before.splitlines()) == 2
  run_here('eval.py', '--search=default', '--beam_size=1')
  run_here('eval.py', '--beam_size=2')
  names = {
    path.name.split('step3.')[1] for path in (tmp_path / 'run' / 'eval').glob('*.json')
  }
  beam, search = sorted(names)
  assert beam == 'beam1.alpha0.6.json' and search.startswith('beam2.alpha0.6.search')
