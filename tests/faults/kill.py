"""Kills a run at random moments, and compares its end with that of an uninterrupted run.

The moments are random times in the parts of a run that a kill could damage (`MOMENTS`). The run has
a moving average and runs out of patience. These must be the same, bit for bit: parameters,
optimizer state, moving average, history, the kept checkpoints, the best one, and metrics.jsonl
except for `WALL_CLOCK`.
"""

import collections
import contextlib
import json
import math
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

from tests.running_commands import CONFIG, ENGLISH, GERMAN
from transformer.experiment.meter import WALL_CLOCK
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.evaluations import best_evaluation
from transformer.runs.run_directory import CHECKPOINTS
from transformer.system.signals import EXIT_STATUS

ROOT = Path(__file__).resolve().parents[2]
EVERY = 5  # Updates between two lines of metrics, and between two evaluations.
PER_KILL = 20  # Evaluations of the run for each kill, so that the run lasts for all kills.
MOMENTS = ('start-up', 'checkpoint', 'evaluation', 'removal', 'save on a signal', 'any')
_SECONDS = 300  # The longest that a process is waited for.


def compare(folder: Path, kills: int, seed: int, signals: list[str]):
  """Trains one run without interruption and one that is killed.

  Args:
    folder: the folder for both runs and their text.
    kills: number of kills.
    seed: seed of the random moments.
    signals: names of the signals, which take turns.

  Returns:
    The number of kills by activity of the run, and a line for each difference of the runs.
  """
  folder.mkdir(parents=True, exist_ok=True)
  for name, part in (('train', slice(None)), ('valid', slice(2))):
    for language, lines in (('en', ENGLISH), ('de', GERMAN)):
      (folder / f'{name}.{language}').write_text(
          ''.join(f'{line}\n' for line in lines[part]), encoding='utf-8')
  (folder / 'tiny.py').write_text(CONFIG.format(folder=str(folder)), encoding='utf-8')
  evaluations = PER_KILL * (kills + 1)
  flags = {'steps': EVERY * evaluations, 'log_every': EVERY, 'eval_every': EVERY,
           'checkpoint_every': 4, 'keep': 2, 'ema_decay': 0.9, 'grace_seconds': 60,
           'patience': 35 if kills > 5 else 11}  # BLEU improves rarely, by jumps.
  whole, killed = Killable(folder / 'whole', flags), Killable(folder / 'killed', flags)
  whole.start()
  # Later processes find programs and the encoded corpus in their caches, and start faster.
  started = whole.wait_for(whole.has_started) / 2
  whole.finish()
  found = [each for each in _metrics(whole.workdir) if 'valid/bleu' in each]
  best, bleu = found.index(best_evaluation(found)), [each['valid/bleu'] for each in found]
  assert best and len(set(bleu)) > 2, f'there is nothing to choose from: {bleu}'
  print(f'{len(found)} evaluations, number {best + 1} is the best; out of patience: '
        f'{len(found) < evaluations}', flush=True)
  moments, counts = random.Random(seed), collections.Counter()
  while sum(counts.values()) < kills:
    number = sum(counts.values())
    killed.start()
    activity = killed.kill(MOMENTS[number % len(MOMENTS)], signals[number % len(signals)],
                           moments, started)
    started = min(started, killed.started)
    if activity is None:
      print('the run was done before it was killed often enough', flush=True)
      break
    print(f'{number + 1:3d}  {signals[number % len(signals)]} at: {activity}', flush=True)
    counts[activity] += 1
  killed.start()
  killed.finish()
  return counts, differences(whole.workdir, killed.workdir)


class Killable:
  """A run, continued by one process after another."""

  def __init__(self, workdir: Path, flags):
    self.workdir = workdir
    self._command = [sys.executable, str(ROOT / 'train.py'), f'--workdir={workdir}',
                     f'--config={workdir.parent}/tiny.py',
                     '--config.optimizer.schedule=constant', '--config.optimizer.warmup_steps=20',
                     '--config.optimizer.peak_learning_rate=0.03',
                     *(f'--config.train.{name}={value}' for name, value in flags.items())]
    self._log = workdir.with_suffix('.log')
    self.started = math.inf  # Seconds of the latest complete start-up.

  def start(self):
    """Starts a process that begins or resumes the run."""
    with self._log.open('wb') as log:
      self._process = subprocess.Popen(self._command, cwd=ROOT, stderr=log, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)})
    self._began = time.monotonic()

  def finish(self):
    """Waits for the end of the run."""
    status = self._process.wait(_SECONDS)
    assert status == 0, (status, self._log.read_text('utf-8'))

  def kill(self, moment: str, name: str, moments: random.Random, started: float) -> str | None:
    """Kills the process at a kind of moment; returns its activity, or None if the run was done."""
    checkpoints = self.workdir / CHECKPOINTS
    occurrences = moments.randint(1, 2)
    if moment == 'start-up':
      self.wait_for(lambda: False, moments.uniform(0.0, started))
    else:
      self.started = self.wait_for(self.has_started)
    for _ in range(occurrences):
      if moment == 'checkpoint':
        self.wait_for(lambda: not list(checkpoints.glob('*.*')))
        self.wait_for(lambda: list(checkpoints.glob('*.*')))
      elif moment == 'removal':
        self.wait_for(lambda: not (checkpoints / 'removed').exists())
        self.wait_for(lambda: (checkpoints / 'removed').exists())
      elif moment == 'evaluation':
        self.wait_for(lambda: not self._evaluating())
        self.wait_for(self._evaluating)
      elif moment == 'save on a signal':
        self._process.send_signal(signal.SIGTERM)
        self.wait_for(lambda: list(checkpoints.glob('*.*')))
        break
    if moment != 'start-up':
      self.wait_for(lambda: False, moments.uniform(0.0, 1.0 if moment == 'any' else 0.02))
    if self._process.poll() is not None:
      assert self._process.returncode == 0, self._log.read_text('utf-8')
      return None
    self._process.send_signal(signal.SIGSTOP)  # So that its activity cannot change before the kill.
    activity = self._activity()
    self._process.send_signal(signal.Signals[name])
    self._process.send_signal(signal.SIGCONT)
    status = self._process.wait(_SECONDS)
    if name == 'SIGKILL':
      assert status == -signal.SIGKILL, status
    elif status == 0:
      return None
    else:
      # Before Python sets its signal handlers, a signal ends the process.
      early = time.monotonic() - self._began < started / 2 and status == -signal.Signals[name]
      assert status in (EXIT_STATUS, 130) or early, (status, self._log.read_text('utf-8'))
      assert 'Traceback' not in self._log.read_text('utf-8'), self._log.read_text('utf-8')
    return activity

  def wait_for(self, happened, seconds: float = _SECONDS) -> float:
    """Waits until `happened()`, the time limit or the end of the process; returns the seconds."""
    began = time.monotonic()
    while self._process.poll() is None and time.monotonic() - began < seconds and not happened():
      time.sleep(0.001)
    return time.monotonic() - began

  def _evaluating(self) -> bool:
    # With EVERY, an evaluation follows each line of training metrics.
    try:
      with (self.workdir / 'metrics.jsonl').open('rb') as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 800))
        return b'train/loss' in file.read().splitlines()[-1]
    except (FileNotFoundError, IndexError):
      return False

  def _activity(self) -> str:
    """Returns what the process is doing."""
    checkpoints = self.workdir / CHECKPOINTS
    if not self.has_started():
      return 'start-up'
    doing = {'writing a checkpoint': list(checkpoints.glob('*.*')),
             'evaluating': self._evaluating(),
             'about to delete a checkpoint': (checkpoints / 'removed').exists()}
    return ', '.join(what for what, done in doing.items() if done) or 'only steps'

  def has_started(self) -> bool:
    """Returns whether the process is ready for the next step, except for its compiled program."""
    return b' device(s), ' in self._log.read_bytes()


def differences(whole: Path, other: Path) -> list[str]:
  """Returns a line for each part of two runs that should be the same and is not."""
  found = []

  def same(what, one, two):
    if one != two:
      found.append(f'{what}: {one!r:.300} and {two!r:.300}')

  states, kept = zip(*map(_contents, (whole, other)), strict=True)
  same('checkpoints', *kept)
  flat = [jax.tree_util.tree_flatten_with_path(state)[0] for state in states]
  same('what a checkpoint holds', *([jax.tree_util.keystr(path) for path, _ in leaves]
                                    for leaves in flat))
  for (path, one), (_, two) in zip(*flat, strict=False):
    one, two = np.asarray(one), np.asarray(two)
    if (one.shape, one.dtype, one.tobytes()) != (two.shape, two.dtype, two.tobytes()):
      found.append(f'{jax.tree_util.keystr(path)} is not the same')
  same('metrics.jsonl', *map(_metrics, (whole, other)))
  same('config.json', *((each / 'config.json').read_bytes() for each in (whole, other)))
  same('vocabulary.model', *((each / 'vocabulary.model').read_bytes() for each in (whole, other)))
  about = [json.loads((each / 'run.json').read_text('utf-8')) for each in (whole, other)]
  for name in ('data', 'counts', 'parameters'):
    same(f'{name} in run.json', *(each[name] for each in about))
  same('files', *(sorted(path.name for path in each.iterdir()) for each in (whole, other)))
  same('folders', *(sorted(path.name for path in (each / CHECKPOINTS).iterdir())
                    for each in (whole, other)))
  return found


def _contents(workdir: Path):
  """Returns the content of the last checkpoint, the steps of all, and the best step."""
  with contextlib.closing(Checkpoints(workdir / CHECKPOINTS, read_only=True)) as checkpoints:
    steps = checkpoints.steps()
    there = {path.name for path in (workdir / CHECKPOINTS / str(steps[-1])).iterdir()
             if path.is_dir()}
    state = checkpoints._manager.restore(steps[-1], args=ocp.args.Composite(
        history=ocp.args.JsonRestore(),
        **{name: ocp.args.StandardRestore() for name in there & {'params', 'average', 'rest'}}))
    state['history'].pop('log')  # A digest of metrics.jsonl, whose lines hold times.
    return dict(state), (steps, checkpoints.resolve('best'))


def _metrics(workdir: Path):
  """Returns the lines of metrics.jsonl without times."""
  lines = (workdir / 'metrics.jsonl').read_text('utf-8').splitlines()
  return [{name: value for name, value in json.loads(line).items() if name not in WALL_CLOCK}
          for line in lines]
