"""No resource grows while a very small model trains for many steps.

LONG_RUN_STEPS=20000 pytest -s tests/robustness/test_long_run.py
prints the table of docs/runs.md. The
first quarter of the run is not compared, since programs are compiled and caches are filled then.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command_fixtures import ENGLISH, GERMAN, ROOT

STEPS = int(os.environ.get('LONG_RUN_STEPS', '600'))
KEEP = 2


class Look(NamedTuple):
  """The resources of a run at a step: bytes of memory, open files, and checkpoints."""

  step: int
  resident: int
  handles: int
  checkpoints: int


def watch(folder: Path) -> list[Look]:
  """Trains in a folder, and measures the run every half second."""
  for split, times in (('train', 20), ('valid', 1)):
    for language, lines in (('en', ENGLISH), ('de', GERMAN)):
      (folder / f'{split}.{language}').write_text(
        '\n'.join([*lines * times, '']), 'utf-8'
      )
  settings = {
    'data.dir': folder,
    'data.vocabulary_size': 300,
    'data.max_length': 64,
    'model.num_layers': 1,
    'model.model_dim': 8,
    'model.ff_dim': 8,
    'model.num_heads': 2,
    'train.tokens_per_batch': 128,
    'train.steps': STEPS,
    'train.log_every': 20,
    'train.eval_every': STEPS // 20,
    'train.checkpoint_every': STEPS // 40,
    'train.keep': KEEP,
    'train.patience': 0,
    'optimizer.warmup_steps': 10,
    'decode.max_extra_length': 2,
  }
  run, looks = folder / 'run', []
  with (folder / 'log').open('wb') as log:
    process = subprocess.Popen(
      [
        sys.executable,
        'train.py',
        '--config=configs/text.py',
        f'--workdir={run}',
        *(f'--config.{name}={value}' for name, value in settings.items()),
      ],
      cwd=ROOT,
      stdout=log,
      stderr=log,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    )
    while process.poll() is None:
      time.sleep(0.5)
      try:
        last = json.loads((run / 'metrics.jsonl').read_bytes().splitlines()[-1])
        status = Path(f'/proc/{process.pid}/status').read_text('utf-8').splitlines()
        resident = next(
          int(line.split()[1]) for line in status if line.startswith('VmRSS')
        )
        looks.append(
          Look(
            last['step'],
            resident * 1024,
            len(os.listdir(f'/proc/{process.pid}/fd')),
            len(os.listdir(run / 'checkpoints')),
          )
        )
      except (OSError, StopIteration, ValueError, IndexError):
        continue  # The run has not begun, or has just ended.
  assert process.returncode == 0, (folder / 'log').read_text('utf-8')[-2000:]
  return looks


@pytest.mark.long
def test_the_resources_of_a_run_do_not_grow(tmp_path):
  looks = watch(tmp_path)
  for number in range(1, 9):
    print(
      *min(looks, key=lambda look, at=number * STEPS / 8: abs(look.step - at)),
      sep=' | ',
    )
  early, late = (
    [look for look in looks if start <= 4 * look.step / STEPS <= start + 1]
    for start in (1, 3)
  )
  # The minimum, since writing a checkpoint takes memory and files for a moment.
  for what, (times, more) in {'resident': (1.1, 0), 'handles': (1.0, 18)}.items():
    before, after = (
      min(getattr(look, what) for look in quarter) for quarter in (early, late)
    )
    assert after <= before * times + more, (
      f'{what} grew from {before:,.0f} to {after:,.0f}'
    )
  # The latest ones, the best, one that is being written, and one that is being removed.
  assert (
    max(look.checkpoints for look in looks) <= KEEP + 3 and looks[-1].step > 0.9 * STEPS
  )
