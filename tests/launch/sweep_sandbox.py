"""Makes a copy of the project whose train.py only writes metrics, and starts sweeps in it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
# The text of a search space.
GOOD = """
def suggest(trial):
  return {'model.dropout': trial.suggest_float('dropout', 0.0, 0.5)}
"""
SECONDS = 120  # The longest wait for anything.
# Its BLEU is optimizer.noam_scale times the step. optimizer.warmup_steps chooses what else happens:
# 13 fails; 17 waits until another worker runs trial 5; 19 waits after an evaluation until it is
# stopped, when first started. It leaves a file if it is asked to stop more than once, since a real
# train.py would then stop without saving.
TRAIN = """
import json, os, pathlib, runpy, signal, sys, time
from transformer import files
from transformer.runs.lock import run_lock
from transformer.runs.run_directory import FORMAT
from transformer.system.signals import SIGNALS

flags = dict(flag[2:].split('=', 1) for flag in sys.argv[1:])
config = runpy.run_path(flags['config'])['get_config']()
run = pathlib.Path(flags['workdir'])


signals = []


def stop(*_):
  signals.append(1)
  if len(signals) > 1:
    (run / 'hurried').touch()
    os._exit(75)
  time.sleep(config.train.grace_seconds)
  sys.exit(75)


for number in SIGNALS:
  signal.signal(number, stop)
with run_lock(run):
  with (run / 'starts').open('a+') as starts:
    starts.write(f'{os.getppid()}\\n')
    starts.seek(0)
    waits = config.optimizer.warmup_steps == 19 and len(starts.readlines()) == 1
  if config.optimizer.warmup_steps == 13:
    print('a line before')
    sys.exit('error: it broke on purpose')
  deadline = time.monotonic() + 250
  while config.optimizer.warmup_steps == 17 and not (run.parent / '5').exists():
    if time.monotonic() > deadline:
      sys.exit('error: no one else ran a trial')
    time.sleep(0.05)
  files.write_sealed(run / 'run.json', {'format': FORMAT, 'commit': 'c0ffee'})
  (run / 'checkpoints' / '5').mkdir(parents=True, exist_ok=True)
  path = run / 'metrics.jsonl'
  done = len(path.read_text().splitlines()) if path.exists() else 0
  with path.open('a') as metrics:
    for step in range(5 * (done + 1), config.train.steps + 1, 5):
      values = {'step': step, 'valid/bleu': config.optimizer.noam_scale * step, 'valid/loss': None}
      metrics.write(json.dumps(values) + '\\n')
      metrics.flush()
      if waits:
        time.sleep(250)
        sys.exit('error: no one stopped it')
"""
SPACE = '''"""A trial of each kind, by its number."""

import optuna

_OF_A_KIND = {
    0: {'optimizer.warmup_steps': 17},
    1: {'optimizer.warmup_steps': 13},
    2: {'model.num_heads': 3},
    3: {'optimizer.noam_scale': 0.1, 'optimizer.warmup_steps': 19},
}


def suggest(trial):
  return {'optimizer.noam_scale': trial.suggest_float('scale', 1.0, 2.0),
          'model.dropout': trial.suggest_float('dropout', 0.0, 0.5),
          **_OF_A_KIND.get(trial.number, {})}


def pruner():
  return optuna.pruners.ThresholdPruner(lower=1.0)
'''
SLOW = '''"""Trials; the first two wait to be stopped."""


def suggest(trial):
  return {'optimizer.noam_scale': trial.suggest_float('scale', 1.0, 2.0),
          'optimizer.warmup_steps': 19 if trial.number < 2 else 1,
          'train.grace_seconds': 0.1 if trial.number else 4.0}
'''
JOBS = '''"""Trials; the first waits to be stopped."""


def suggest(trial):
  return {'optimizer.noam_scale': trial.suggest_float('scale', 1.0, 2.0),
          'optimizer.warmup_steps': 1 if trial.number else 19}
'''
SEARCH = '''"""The search space of a real run."""

objective = 'valid/loss'


def suggest(trial):
  return {'optimizer.peak_learning_rate': trial.suggest_float('rate', 1e-3, 1e-1, log=True)}
'''


def build(sandbox):
  """Makes the copy in a folder."""
  shutil.copytree(ROOT / 'launch', sandbox / 'launch')
  for name in ('transformer', 'configs'):
    (sandbox / name).symlink_to(ROOT / name)
  for name, text in (
    ('train', TRAIN),
    ('space', SPACE),
    ('slow', SLOW),
    ('jobs', JOBS),
    ('search', SEARCH),
  ):
    (sandbox / f'{name}.py').write_text(text)


class Sweep:
  """A sweep that is started several times."""

  def __init__(self, root, workdir, *flags):
    self.workdir = workdir
    self._log = workdir.with_suffix('.log')
    self._command = [
      sys.executable,
      root / 'launch' / 'sweep.py',
      f'--workdir={workdir}',
      *flags,
    ]

  def start(self):
    """Starts or continues the sweep."""
    with self._log.open('ab') as log:
      self.process = subprocess.Popen(
        self._command,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
      )

  def end(self, status):
    """Waits for the end of the sweep, and returns its standard output."""
    out, _ = self.process.communicate(timeout=SECONDS)
    assert self.process.returncode == status, self.log
    return out

  def kill(self, *folders):
    """Kills the sweep, and the processes that hold locks in its folders."""
    for process in [
      self.holder_of(folder) for folder in folders
    ]:  # Read before one is killed.
      os.kill(process, signal.SIGKILL)
    self.end(-signal.SIGKILL)

  def holder_of(self, folder):
    """Returns the process that holds the lock in a folder of the sweep."""
    return json.loads((self.workdir / folder / 'lock.json').read_text('utf-8'))[
      'process'
    ]

  def wait_for_report(self, record, step=5):
    """Waits until the journal has an evaluation of a running trial, and no process writes to it.

    A kill while a process writes would cost 30 seconds.
    """
    journal = self.workdir / 'journal.log'
    text, lock = (
      f'"trial_id":{record},"step":{step},',
      journal.with_name('journal.log.lock'),
    )
    deadline = time.monotonic() + SECONDS
    while lock.exists() or not (
      journal.exists() and text in journal.read_text('utf-8')
    ):
      assert self.process.poll() in (None, 0) and time.monotonic() < deadline, self.log
      time.sleep(0.01)

  def close(self):
    """Kills a process that a failed test has left."""
    if self.process.poll() is None:
      self.process.kill()
    self.process.communicate()

  @property
  def log(self):
    return self._log.read_text('utf-8')


def rows_of(table):
  """Returns the titles of the printed table, and its rows by number."""
  header, *lines = table.splitlines()
  titles = header.split()
  rows = {}
  for line in lines:
    cells = [
      line[match.start() :].split('  ')[0].strip()
      for match in re.finditer(r'\S+(?: \S+)*', line)
    ]
    rows[int(cells[0].split()[0])] = cells
  return titles, rows
