"""A killed and resumed run of the Tiny model ends with the bits of an uninterrupted one."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.full_size import tiny
from tests.full_size.conftest import ROOT
from tests.robustness.kill import differences

pytestmark = pytest.mark.long
STEPS = 6


@pytest.fixture(scope='module')
def start(environment, tmp_path_factory):
  """Returns a function that starts or resumes a run in the folder `name`."""
  data, runs = tmp_path_factory.mktemp('data'), tmp_path_factory.mktemp('runs')
  for name, count in (('train', 1500), ('valid', 20)):
    for seed, language in enumerate(('en', 'de')):
      lines = tiny.random_lines(count, seed=len(name) + 10 * seed)
      (data / f'{name}.{language}').write_text(''.join(f'{line}\n' for line in lines))

  def run(name):
    settings = {
      'data.dir': data,
      'data.valid': 'valid',
      'data.vocabulary_size': tiny.VOCABULARY,
      'optimizer.warmup_steps': 3,
      'train.steps': STEPS,
      'train.log_every': 1,
      'train.eval_every': 3,
      'train.checkpoint_every': 2,
      'decode.max_extra_length': 5,
    }
    with (runs / f'{name}.log').open('ab') as log:
      return runs / name, subprocess.Popen(
        [
          sys.executable,
          'train.py',
          '--config=configs/multi30k_tiny.py',
          f'--workdir={runs / name}',
          *(f'--config.{key}={value}' for key, value in settings.items()),
        ],
        cwd=ROOT,
        env=environment,
        stderr=log,
      )

  return run


def losses(workdir):
  try:
    lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  except FileNotFoundError:
    return {}
  return {
    row['step']: row['train/loss']
    for row in map(json.loads, lines)
    if 'train/loss' in row
  }


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(start):
  whole, process = start('whole')
  assert process.wait() == 0, whole.with_suffix('.log').read_text()
  assert list(losses(whole)) == [*range(1, STEPS + 1)]
  assert losses(whole)[STEPS] < losses(whole)[1]

  killed, process = start('killed')
  # The kill is between two checkpoints, so that the resumed run repeats a step.
  while process.poll() is None and not (
    max(losses(killed), default=0) >= 3 and (killed / 'checkpoints' / '2').exists()
  ):
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL, killed.with_suffix('.log').read_text()
  assert 3 <= max(losses(killed)) < STEPS
  _, process = start('killed')
  assert process.wait() == 0, killed.with_suffix('.log').read_text()
  assert len(json.loads((killed / 'run.json').read_text())['resumed']) == 1
  assert differences(whole, killed) == []
