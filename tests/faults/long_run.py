"""Trains a very small model for many steps, and checks that no resource grows.

  python -m tests.faults.long_run                  # 20,000 steps
  python -m tests.faults.long_run --steps=600

Memory and the number of open files must not grow, old checkpoints must be removed, and
metrics.jsonl must never shrink. The first quarter of the run is not compared, since programs are
compiled and caches are filled then.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

_STEPS = flags.DEFINE_integer('steps', 20_000, 'Updates.')
_ROOT = Path(__file__).resolve().parents[2]
_KEEP = 2
# The most by which a resource may grow from the second to the last quarter: a factor, and an
# addend for the files that are open while a checkpoint is written. A quarter has ten checkpoints
# and five evaluations.
_MOST_GROWTH = {'resident': (1.05, 0), 'handles': (1.0, 18)}
_PAIRS = [('a man in a red shirt climbs a rock .', 'ein mann in rotem hemd klettert .'),
          ('two women sit on the bench .', 'zwei frauen sitzen auf der bank .'),
          ('the dog runs through wet grass .', 'der hund läuft durch nasses gras .')]


class Look(NamedTuple):
  """The resources of a run at a moment.

  Attributes:
    step: the last step in metrics.jsonl.
    resident: bytes of memory.
    handles: number of open files, sockets and the like.
    checkpoints: number of checkpoints on the disk, finished or not.
    metrics: bytes of metrics.jsonl.
  """

  step: int
  resident: int
  handles: int
  checkpoints: int
  metrics: int


def watch(folder: Path, steps: int) -> list[Look]:
  """Trains for some steps in `folder`, and measures the run every half second.

  Raises:
    RuntimeError: the run failed.
  """
  for split, pairs in (('train', _PAIRS * 20), ('valid', _PAIRS)):
    for language, side in zip(('en', 'de'), zip(*pairs, strict=True), strict=True):
      (folder / f'{split}.{language}').write_text(''.join(f'{line}\n' for line in side), 'utf-8')
  settings = {
      'data.dir': folder, 'data.vocabulary_size': 300, 'data.max_length': 64,
      'model.num_layers': 1, 'model.model_dim': 8, 'model.ff_dim': 8, 'model.num_heads': 2,
      'train.tokens_per_batch': 128, 'train.steps': steps, 'train.log_every': 20,
      'train.eval_every': max(steps // 20, 1), 'train.checkpoint_every': max(steps // 40, 1),
      'train.keep': _KEEP, 'train.patience': 0, 'optimizer.warmup_steps': 10,
      'decode.max_extra_length': 2}
  run = folder / 'run'
  with (folder / 'log').open('wb') as log:
    process = subprocess.Popen(
        [sys.executable, str(_ROOT / 'train.py'), '--config=configs/text.py', f'--workdir={run}',
         *(f'--config.{name}={value}' for name, value in settings.items())],
        cwd=_ROOT, stdout=log, stderr=log, env={**os.environ, 'JAX_PLATFORMS': 'cpu'})
    looks = []
    while process.poll() is None:
      time.sleep(0.5)
      try:
        looks.append(_look(process.pid, run))
      except (OSError, StopIteration, ValueError, IndexError):
        continue  # The run has not begun, or has just ended.
  if process.returncode:
    raise RuntimeError(f'train.py ended with {process.returncode}:\n'
                       f'{(folder / "log").read_text("utf-8")[-2000:]}')
  return looks


def _look(pid: int, run: Path) -> Look:
  metrics = run / 'metrics.jsonl'
  last = metrics.read_bytes().splitlines()[-1]
  status = Path(f'/proc/{pid}/status').read_text('utf-8').splitlines()
  resident = next(int(line.split()[1]) * 1024 for line in status if line.startswith('VmRSS'))
  return Look(json.loads(last)['step'], resident, len(os.listdir(f'/proc/{pid}/fd')),
              len(os.listdir(run / 'checkpoints')), metrics.stat().st_size)


def faults(looks: list[Look], steps: int) -> list[str]:
  """Returns a line for each resource that grew too much, or shrank though it must not."""
  def quarter(number):
    return [look for look in looks
            if number * steps / 4 <= look.step <= (number + 1) * steps / 4]

  early, late = quarter(1), quarter(3)
  if not early or not late:
    return [f'only {len(early)} and {len(late)} looks at the second and the last quarter']
  found = []
  for what, (times, more) in _MOST_GROWTH.items():
    # The minimum, since writing a checkpoint takes memory and files for a moment.
    before, after = (min(getattr(look, what) for look in each) for each in (early, late))
    if after > before * times + more:
      found.append(f'{what} grew from {before:,.0f} to {after:,.0f}')
  # The latest ones, the best, one that is being written, and one that is being removed.
  if max(look.checkpoints for look in looks) > _KEEP + 3:
    found.append(f'{max(look.checkpoints for look in looks)} checkpoints lay on disk')
  sizes = [look.metrics for look in looks]
  if sizes != sorted(sizes):
    found.append('metrics.jsonl shrank')
  return found


def main(_):
  """Prints a table of the measurements, and the resources that grew."""
  with tempfile.TemporaryDirectory() as folder:
    looks = watch(Path(folder), _STEPS.value)
  print('| step | memory, MB | open files | checkpoints | metrics.jsonl, kB |\n'
        '| --- | --- | --- | --- | --- |')
  for number in range(1, 9):
    look = min(looks, key=lambda each, at=number * _STEPS.value / 8: abs(each.step - at))
    print(f'| {look.step:,} | {look.resident / 1e6:,.0f} | {look.handles} | {look.checkpoints} '
          f'| {look.metrics / 1e3:,.0f} |')
  if found := faults(looks, _STEPS.value):
    sys.exit('\n'.join(found))
  print('nothing grew')


if __name__ == '__main__':
  app.run(main)
