"""Runs one trial: train.py in its own directory; reports its evaluations to the pruner."""

import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
from absl import logging

from launch import child_process
from launch.config_file import config_file, with_settings
from launch.sweeping import checkpoints, space
from launch.sweeping.records import Trial
from launch.sweeping.study import TRIALS, Sweep
from transformer import files
from transformer.errors import UserError
from transformer.runs.evaluations import BEST_BY, best_evaluation, is_out_of_patience
from transformer.runs.lock import IN_USE, run_lock
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import METRICS, read_record
from transformer.system.signals import EXIT_STATUS
from transformer.training.config import TrainConfig

ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 30.0  # Time between two log lines about a trial in training.
_LOG_TAIL = 1 << 16
_STEP = re.compile(r'\] (step \d+/.*)')  # In a log line of train.py.


def run_trial(
  sweep: Sweep, trial: Trial, children: list[subprocess.Popen], signals: Sequence[str]
) -> float:
  """Trains a trial to its end; returns its best evaluation, or NaN if it failed.

  Sets the trial's attributes `settings`, `step`, `seconds`, `commit` and, if it failed, `reason`.

  Args:
    children: receives the process of train.py, as in `child_process.start_child`.
    signals: the names of the received signals that ask this worker to stop.

  Raises:
    TrialPruned: the pruner stopped the trial.
    StoppedBySignal: a signal stopped the trial.
  """
  try:
    settings = trial.user_attrs.get('settings') or space.sample_settings(
      sweep.space, trial
    )
    trial.set_user_attr('settings', settings)
    config = with_settings(sweep.config, settings)
  except UserError as error:
    return _failed(trial, str(error))
  run = sweep.folder / TRIALS / str(trial.number)
  checkpoints.check_not_deleted(run)
  docstring = f'Trial {trial.number} of a sweep with {sweep.space.filename}.'
  files.write(run.with_name(f'{run.name}.py'), config_file(docstring, config, settings))
  logging.info(
    'trial %d: %s',
    trial.number,
    ', '.join(f'{name} {value}' for name, value in settings.items()),
  )
  evaluations = Evaluations(trial, run, sweep.objective, config.train)
  status = EXIT_STATUS
  reason = ''
  # Another process may have stopped the run, or have locked it first.
  while status == EXIT_STATUS or IN_USE in reason:
    _wait_until_free(run, signals)
    status = _train(trial, run, evaluations, children, signals)
    if signals and status:
      raise child_process.stopped_by_signal(signals)
    reason = _reason(status, _tail(run)) if status else ''
  if status:
    return _failed(trial, reason)
  trial.set_user_attr('commit', read_record(run)['commit'])
  best = best_row(evaluations.rows(), sweep.space)
  if best is None:
    return _failed(trial, f'{sweep.objective} was never a finite number')
  trial.set_user_attr('step', best['step'])
  value = best[sweep.objective]
  logging.info(
    'trial %d: complete, %s %.4g at step %d',
    trial.number,
    sweep.objective,
    value,
    best['step'],
  )
  return value


class Evaluations:
  """The evaluations of a run, reported to the pruner in order.

  The pruner does not decide on the run's last evaluation, so its decisions do not depend on when
  the evaluations are read.
  """

  def __init__(self, trial: Trial, run: Path, objective: str, train: TrainConfig):
    self._trial = trial
    self._run = run
    self._objective = objective
    self._train = train
    self._reported = set(trial.study.records()[trial.number].intermediate_values)

  def rows(self) -> list[dict[str, float]]:
    """Returns the evaluations written so far, with NaN for non-finite values."""
    return [
      {name: math.nan if value is None else value for name, value in row.items()}
      for row in read_metrics(self._run / METRICS)
      if self._objective in row
    ]

  def report(self):
    """Reports new evaluations to the pruner; raises `TrialPruned` if it stops the trial."""
    rows = self.rows()
    for place, row in enumerate(rows, 1):
      step = row['step']
      if step in self._reported:
        continue
      self._reported.add(step)
      self._trial.report(row[self._objective], step)
      if not _is_last(rows[:place], self._train) and self._trial.should_prune():
        self._trial.set_user_attr('step', step)
        logging.info('trial %d: pruned at step %d', self._trial.number, step)
        raise optuna.TrialPruned


def best_row(rows: Sequence[Mapping[str, float]], search_space: space.Space):
  """Returns the evaluation with the best objective; ties in a score are broken by the loss."""
  objective = search_space.objective
  finite = [row for row in rows if not math.isnan(row[objective])]
  if objective != 'valid/loss':
    metric = objective.removeprefix('valid/')
    return best_evaluation([{**row, BEST_BY: metric} for row in finite])
  return min(finite, key=lambda row: row[objective], default=None)


def _is_last(rows: Sequence[Mapping[str, float]], train: TrainConfig) -> bool:
  """Returns whether a run ends with the last of these evaluations."""
  if train.best_by:
    rows = [{**row, BEST_BY: train.best_by} for row in rows]
  return rows[-1]['step'] >= train.steps or is_out_of_patience(rows, train.patience)


def _wait_until_free(run: Path, signals: Sequence[str]):
  """Waits until no process trains in a directory: after a kill, train.py may need a while to save.

  Raises:
    StoppedBySignal: a signal came first.
  """
  while not signals:
    try:
      with run_lock(run):
        return
    except UserError as error:
      logging.log_every_n_seconds(
        logging.INFO, 'waiting for another process to leave the run: %s', 60, error
      )
      time.sleep(_POLL_SECONDS)
  raise child_process.stopped_by_signal(signals)


def _train(
  trial: Trial,
  run: Path,
  evaluations: Evaluations,
  children: list[subprocess.Popen],
  signals: Sequence[str],
) -> int:
  """Runs train.py until it exits or is pruned; returns its exit status."""
  began = time.monotonic()
  earlier_seconds = trial.user_attrs.get('seconds', 0.0)
  command = [
    sys.executable,
    str(ROOT / 'train.py'),
    f'--config={run}.py',
    f'--workdir={run}',
  ]
  with Path(f'{run}.log').open('ab') as log:
    process = child_process.start_child(
      children, signals, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
  logged = began
  try:
    status = None
    while status is None:
      status = process.poll()  # Before reading the metrics, so that none is missed.
      evaluations.report()
      if status is None and time.monotonic() - logged >= _QUIET_SECONDS:
        logged = time.monotonic()
        steps = _STEP.findall('\n'.join(_tail(run))) or ['no step is logged yet']
        logging.info('trial %d: %s', trial.number, steps[-1])
      if status is None:
        time.sleep(_POLL_SECONDS)
    return status
  finally:
    if process.poll() is None and not signals:
      process.terminate()
    process.wait()  # The next trial may need its memory.
    children.remove(process)
    trial.set_user_attr('seconds', earlier_seconds + time.monotonic() - began)


def _failed(trial, reason):
  """Stores the reason of a failed trial; returns NaN, its value."""
  trial.set_user_attr('reason', reason)
  logging.warning('trial %d: failed: %s', trial.number, reason)
  return math.nan


def _tail(run):
  """Returns the last lines that train.py has printed."""
  with Path(f'{run}.log').open('rb') as file:
    file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
    return [
      line for line in file.read().decode(errors='replace').splitlines() if line.strip()
    ]


def _reason(status: int, lines: Sequence[str]) -> str:
  """Returns the reason why train.py failed: the signal, its last error or its last line."""
  if status < 0:
    name = signal.Signals(-status).name
    memory = ', perhaps out of memory' if name == 'SIGKILL' else ''
    return f'train.py was killed by {name}{memory}'
  errors = [
    line.removeprefix('error: ') for line in lines if line.startswith('error: ')
  ]
  return (errors or lines or ['train.py printed nothing'])[-1]
