"""Kills a run at random moments, and compares its end with an uninterrupted run.

The moments are random times in the parts of a run that a kill could damage (`MOMENTS`). The run has
a moving average and runs out of patience. These must be the same, bit for bit: parameters,
optimizer state, moving average, history, the kept checkpoints, the best one, and metrics.jsonl
except for `WALL_CLOCK`.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from tests.command_fixtures import CONFIG, ENGLISH, GERMAN
from transformer.experiment.meter import WALL_CLOCK
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.run_directory import CHECKPOINTS, METRICS
from transformer.system.signals import EXIT_STATUS

ROOT = Path(__file__).resolve().parents[2]
EVERY = 5  # Updates between two lines of metrics, and between two evaluations.
# Evaluations of the run for each kill, so that the run lasts for all kills.
PER_KILL = 20
MOMENTS = ('start-up', 'checkpoint', 'evaluation', 'removal', 'save on a signal', 'any')
_SECONDS = 300  # The longest that a process is waited for.


def compare(folder: Path, kills: int, seed: int, signals: list[str]) -> list[str]:
  """Trains one run without interruption, and one that is killed at random moments.

  Args:
    folder: the folder for both runs and their text.
    signals: names of the signals, which take turns.

  Returns:
    A line for each difference of the runs.
  """
  folder.mkdir(parents=True, exist_ok=True)
  for name, part in (('train', slice(None)), ('valid', slice(2))):
    for language, lines in (('en', ENGLISH), ('de', GERMAN)):
      (folder / f'{name}.{language}').write_text(
        ''.join(f'{line}\n' for line in lines[part]), encoding='utf-8'
      )
  (folder / 'tiny.py').write_text(CONFIG.format(folder=str(folder)), encoding='utf-8')
  evaluations = PER_KILL * (kills + 1)
  flags = {
    'steps': EVERY * evaluations,
    'log_every': EVERY,
    'eval_every': EVERY,
    'checkpoint_every': 4,
    'keep': 2,
    'ema_decay': 0.9,
    'grace_seconds': 60,
    'patience': 35 if kills > 5 else 11,
  }  # BLEU improves rarely, by jumps.
  whole, killed = Killable(folder / 'whole', flags), Killable(folder / 'killed', flags)
  whole.start()
  # Later processes find programs and the encoded corpus in their caches, and start faster.
  started = whole.wait_for(whole.has_started) / 2
  whole.finish()
  bleu = [row['valid/bleu'] for row in _metrics(whole.workdir) if 'valid/bleu' in row]
  assert bleu.index(max(bleu)) and len(set(bleu)) > 2, (
    f'there is nothing to choose from: {bleu}'
  )
  moments = random.Random(seed)
  for number in range(kills):
    moment, name = MOMENTS[number % len(MOMENTS)], signals[number % len(signals)]
    print(f'{number + 1:3d}  {name} at: {moment}', flush=True)
    killed.start()
    assert killed.kill(moment, name, moments, started), 'the run was done too early'
  killed.start()
  killed.finish()
  return differences(whole.workdir, killed.workdir)


class Killable:
  """A run, continued by one process after another."""

  def __init__(self, workdir: Path, flags):
    self.workdir = workdir
    self._command = [
      sys.executable,
      str(ROOT / 'train.py'),
      f'--workdir={workdir}',
      f'--config={workdir.parent}/tiny.py',
      '--config.optimizer.schedule=constant',
      '--config.optimizer.warmup_steps=20',
      '--config.optimizer.peak_learning_rate=0.03',
      *(f'--config.train.{name}={value}' for name, value in flags.items()),
    ]
    self._log = workdir.with_suffix('.log')

  def start(self):
    """Starts a process that begins or resumes the run."""
    with self._log.open('wb') as log:
      self._process = subprocess.Popen(
        self._command,
        cwd=ROOT,
        stderr=log,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)},
      )
    self._began = time.monotonic()

  def finish(self):
    """Waits for the end of the run."""
    status = self._process.wait(_SECONDS)
    assert status == 0, (status, self._log.read_text('utf-8'))

  def kill(
    self, moment: str, name: str, moments: random.Random, started: float
  ) -> bool:
    """Kills the process at a kind of moment; returns whether the run was not done before."""
    checkpoints = self.workdir / CHECKPOINTS
    signs = {
      'checkpoint': lambda: list(checkpoints.glob('*.*')),
      'evaluation': self._evaluating,
      'removal': (checkpoints / 'removed').exists,
    }
    occurrences = moments.randint(1, 2)
    if moment == 'start-up':
      self.wait_for(lambda: False, moments.uniform(0.0, started))
    else:
      self.wait_for(self.has_started)
      if moment == 'save on a signal':
        self._process.send_signal(signal.SIGTERM)
        self.wait_for(signs['checkpoint'])
      elif moment in signs:
        for _ in range(occurrences):
          self.wait_for(lambda: not signs[moment]())
          self.wait_for(signs[moment])
      self.wait_for(
        lambda: False, moments.uniform(0.0, 1.0 if moment == 'any' else 0.02)
      )
    self._process.send_signal(signal.Signals[name])
    status = self._process.wait(_SECONDS)
    if status == 0:
      return False
    if name == 'SIGKILL':
      assert status == -signal.SIGKILL, (status, self._log.read_text('utf-8'))
      return True
    # Before Python sets its signal handlers, a signal ends the process.
    early = (
      time.monotonic() - self._began < started / 2 and status == -signal.Signals[name]
    )
    assert status in (EXIT_STATUS, 130) or early, (status, self._log.read_text('utf-8'))
    assert 'Traceback' not in self._log.read_text('utf-8'), self._log.read_text('utf-8')
    return True

  def wait_for(self, happened, seconds: float = _SECONDS) -> float:
    """Waits until `happened()`, the time limit or the end of the process; returns the seconds."""
    began = time.monotonic()
    while (
      self._process.poll() is None
      and time.monotonic() - began < seconds
      and not happened()
    ):
      time.sleep(0.001)
    return time.monotonic() - began

  def _evaluating(self) -> bool:
    # With EVERY, an evaluation follows each line of training metrics.
    try:
      lines = (self.workdir / METRICS).read_bytes().splitlines()
      return b'train/loss' in lines[-1]
    except (FileNotFoundError, IndexError):
      return False

  def has_started(self) -> bool:
    """Returns whether the process is ready for the next step, except for its compiled program."""
    return b' device(s), ' in self._log.read_bytes()


def differences(whole: Path, other: Path) -> list[str]:
  """Returns a line for each part of two runs that should be the same and is not."""
  lines = []

  def same(what, one, two):
    if one != two:
      lines.append(f'{what}: {one!r:.300} and {two!r:.300}')

  states, kept = zip(*map(_contents, (whole, other)), strict=True)
  same('checkpoints', *kept)
  flat = [jax.tree_util.tree_flatten_with_path(state)[0] for state in states]
  same(
    'what a checkpoint holds',
    *([jax.tree_util.keystr(path) for path, _ in leaves] for leaves in flat),
  )
  for (path, one), (_, two) in zip(*flat, strict=False):
    one, two = np.asarray(one), np.asarray(two)
    if (one.shape, one.dtype, one.tobytes()) != (two.shape, two.dtype, two.tobytes()):
      lines.append(f'{jax.tree_util.keystr(path)} is not the same')
  same('metrics.jsonl', *map(_metrics, (whole, other)))
  same('config.json', *((run / 'config.json').read_bytes() for run in (whole, other)))
  same(
    'vocabulary.model',
    *((run / 'vocabulary.model').read_bytes() for run in (whole, other)),
  )
  about = [json.loads((run / 'run.json').read_text('utf-8')) for run in (whole, other)]
  for name in ('data', 'counts', 'parameters'):
    same(f'{name} in run.json', *(record[name] for record in about))
  same(
    'files', *(sorted(path.name for path in run.iterdir()) for run in (whole, other))
  )
  same(
    'folders',
    *(
      sorted(path.name for path in (run / CHECKPOINTS).iterdir())
      for run in (whole, other)
    ),
  )
  return lines


def _contents(workdir: Path):
  """Returns the content of the last checkpoint, the steps of all, and the best step."""
  checkpoints = Checkpoints(workdir / CHECKPOINTS)
  steps, reader = checkpoints.steps, ocp.StandardCheckpointer()
  history = checkpoints.history(steps[-1])
  history.pop('log')  # A digest of metrics.jsonl, whose lines hold times.
  parts = (
    workdir / CHECKPOINTS / str(steps[-1]) / name
    for name in ('params', 'average', 'rest')
  )
  state = {
    part.name: reader.restore(part.absolute()) for part in parts if part.is_dir()
  }
  return {'history': history, **state}, (steps, checkpoints.resolve('best'))


def _metrics(workdir: Path):
  """Returns the lines of metrics.jsonl without times."""
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  return [
    {name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
    for line in lines
  ]
