"""`train.py` and `eval.py` on text files, as a user runs them, and a killed run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import chex
import pytest

from tests.sentences import english_and_french
from transformer.experiment.meter import WALL_CLOCK
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import best_evaluation

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]
SETTINGS = {
    'data.vocabulary_size': 700, 'data.max_length': 32, 'data.source_language': 'en',
    'data.target_language': 'fr', 'model.num_layers': 1, 'model.model_dim': 16,
    'model.ff_dim': 24, 'model.num_heads': 2, 'train.tokens_per_batch': 256, 'train.steps': 30,
    'train.log_every': 5, 'train.eval_every': 15, 'train.checkpoint_every': 5,
    'decode.max_extra_length': 5}


def command(script, *arguments, **options):
  """Starts a script of the repository's root with one CPU device."""
  return subprocess.Popen(
      [sys.executable, str(ROOT / script), *arguments], cwd=ROOT, text=True,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'}, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE, **options)


def train(data, workdir):
  return command('train.py', '--config=configs/text.py', f'--workdir={workdir}',
                 f'--config.data.dir={data}',
                 *(f'--config.{name}={value}' for name, value in SETTINGS.items()))


def evaluate(*arguments, text=None):
  process = command('eval.py', *arguments, stdin=subprocess.PIPE)
  out, errors = process.communicate(text, timeout=240)
  assert process.returncode == 0, errors
  return out, errors


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Writes text files of three splits; the third source of the test split is empty."""
  folder = tmp_path_factory.mktemp('data')
  pairs = list(zip(*english_and_french(240), strict=True))
  for name, part in (('train', pairs[:200]), ('valid', pairs[200:220]), ('test', pairs[220:])):
    for side, language in enumerate(('en', 'fr')):
      lines = [pair[side] for pair in part]
      if name == 'test' and language == 'en':
        lines[2] = ''
      (folder / f'{name}.{language}').write_text(''.join(line + '\n' for line in lines))
  return folder


@pytest.fixture(scope='module')
def trained(data, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'whole'
  process = train(data, workdir)
  _, errors = process.communicate(timeout=300)
  assert process.returncode == 0, errors
  assert 'the best step on the validation split is ' in errors
  return workdir


def everything(workdir):
  """Returns the last checkpoint, the steps of all, and the metrics without times."""
  checkpoints = Checkpoints(workdir / 'checkpoints', read_only=True)
  found = checkpoints._manager.restore(checkpoints.steps()[-1])
  state = {name: found[name] for name in ('params', 'rest', 'history')}
  state['history'].pop('log')  # A digest of metrics.jsonl, whose lines hold times.
  steps = checkpoints.steps()
  checkpoints.close()
  rows = [{name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
          for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  return state, steps, rows


def test_killed_run_resumes_to_the_same_bits(data, trained, tmp_path):
  workdir = tmp_path / 'killed'
  process = train(data, workdir)
  deadline = time.monotonic() + 240
  while not (workdir / 'checkpoints' / '10').exists() and process.poll() is None:
    assert time.monotonic() < deadline
    time.sleep(0.02)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL
  assert not (workdir / 'checkpoints' / '30').exists()
  process = train(data, workdir)
  _, errors = process.communicate(timeout=300)
  assert process.returncode == 0, errors
  state, steps, rows = everything(workdir)
  whole_state, whole_steps, whole_rows = everything(trained)
  chex.assert_trees_all_equal(state, whole_state)
  assert (steps, rows) == (whole_steps, whole_rows)
  about, whole = (json.loads((each / 'run.json').read_text()) for each in (workdir, trained))
  assert [session['commit'] for session in about['resumed']] == [about['commit']]
  assert whole['resumed'] == [] and about['data'] == whole['data']
  assert rows[-1]['step'] == 30


def test_directory_describes_the_run(trained):
  about = json.loads((trained / 'run.json').read_text())
  assert about['counts']['train/train']['kept'] == 200
  assert set(about['data']) == {'vocabulary', 'train/train', 'valid'}
  assert about['packages']['jax'] and about['devices']['platform'] == 'cpu'
  config = json.loads((trained / 'config.json').read_text())
  assert config['model']['model_dim'] == 16
  assert list((trained / 'tensorboard').iterdir())


def test_split_is_scored_and_the_score_is_saved(trained):
  out, _ = evaluate(f'--workdir={trained}', '--examples=2')
  printed = re.search(r'test: 20 sentences in .*\n  BLEU +([\d.]+)', out)
  assert printed and out.count('  translation  ') == 2
  assert 'nrefs:1|case:mixed|eff:no|tok:13a|' in out
  result, = (json.loads(path.read_text()) for path in (trained / 'eval').glob('test.*.json'))
  assert f'{result["bleu"]:.2f}' == printed[1]
  assert result['signature'] in out


def test_file_and_standard_input_give_a_line_for_each_line(data, trained, tmp_path):
  output = tmp_path / 'deep' / 'test.fr'
  source, reference = data / 'test.en', data / 'test.fr'
  out, _ = evaluate(f'--workdir={trained}', f'--source={source}', f'--reference={reference}',
                    f'--reference={reference}', f'--output={output}')
  lines = output.read_text().split('\n')
  assert len(lines) == 21 and lines[2] == '' and lines[-1] == ''
  assert 'nrefs:2|' in out
  piped, _ = evaluate(f'--workdir={trained}', '--source=-', text=source.read_text())
  assert piped.split('\n') == lines


def forget_checkpoints(run):
  """Leaves a run as a kill before its first checkpoint does."""
  shutil.rmtree(run / 'checkpoints')
  (run / 'checkpoints').mkdir()


def test_training_starts_from_another_runs_weights_and_vocabulary(data, trained, tmp_path):
  def tune():
    process = command(
        'train.py', '--config=configs/text.py', f'--workdir={tmp_path / "tuned"}',
        f'--config.data.dir={data}', f'--config.train.init_from={tmp_path / "origin"}',
        *(f'--config.{name}={value}' for name, value in
          {**SETTINGS, 'train.steps': 1, 'optimizer.peak_learning_rate': 1e-9}.items()))
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors

  shutil.copytree(trained, tmp_path / 'origin')
  status, errors = tune()
  assert status == 0, errors
  assert ((tmp_path / 'tuned' / 'vocabulary.model').read_bytes()
          == (trained / 'vocabulary.model').read_bytes())
  before = everything(trained)[2]
  best = best_evaluation([row for row in before if 'valid/bleu' in row])
  after, = (row for row in everything(tmp_path / 'tuned')[2] if 'valid/bleu' in row)
  assert after['valid/loss'] == pytest.approx(best['valid/loss'], rel=1e-5)
  # A run without a checkpoint starts again, though its origin may have changed by then.
  forget_checkpoints(tmp_path / 'tuned')
  status, errors = tune()
  assert status == 0, errors
  forget_checkpoints(tmp_path / 'tuned')
  for step in everything(tmp_path / 'origin')[1]:
    if step != 10:
      shutil.rmtree(tmp_path / 'origin' / 'checkpoints' / str(step))
  status, errors = tune()
  assert status == 1 and 'tuned began with other train.init_from' in errors, errors
