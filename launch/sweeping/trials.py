"""Runs one trial: train.py in a directory of its own, whose evaluations the pruner sees."""

import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
from absl import logging
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState
from tqdm import tqdm

from launch.sweeping import space
from launch.sweeping.study import TRIALS, Sweep, number_of
from transformer import files
from transformer.commands.config_file import changed, config_file
from transformer.errors import UserError
from transformer.runs.lock import RunLock
from transformer.runs.patience import BEST_BY, best_evaluation, is_out_of_patience
from transformer.runs.run_directory import METRICS, RUN
from transformer.system.child_process import leashed, start
from transformer.system.signals import EXIT_STATUS
from transformer.training.config import TrainConfig

ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 30.0  # Time between two lines about a trial that trains.
_LOG_TAIL = 1 << 16


def run_trial(sweep: Sweep, trial: optuna.trial.Trial, stop: list[str]):
  """Trains a trial to its end and stores its result, or puts it back when asked to stop.

  The trial's value is its best evaluation. Its attributes are `settings`, `step`, `seconds`,
  `commit` and, where it failed, `reason`.

  Args:
    sweep: the sweep of the trial.
    trial: from `Sweep.claim`.
    stop: from `stop_requests`; a request may come while the trial trains.
  """
  try:
    _run(sweep, trial, stop)
  except UpdateFinishedTrialError:
    logging.warning('trial %d: another worker has it, since this one was silent for too long',
                    number_of(trial))


def _run(sweep: Sweep, trial: optuna.trial.Trial, stop: list[str]):
  number = number_of(trial)
  try:
    settings = trial.user_attrs.get('settings') or space.draw(sweep.space, trial)
    trial.set_user_attr('settings', settings)
    config = changed(sweep.config, settings)
  except UserError as error:
    _fail(sweep, trial, str(error))
    return
  run = sweep.folder / TRIALS / str(number)
  docstring = f'Trial {number} of a sweep with {sweep.space.filename}.'
  files.write(run.with_name(f'{number}.py'), config_file(docstring, config, settings))
  logging.info('trial %d: %s', number, ', '.join(
      f'{name} {value}' for name, value in settings.items()))
  while _wait_until_free(run, stop):
    status, pruned_at = _train(sweep, trial, config.train, run, stop)
    if pruned_at is not None:
      trial.set_user_attr('step', pruned_at)
      sweep.finish(trial, TrialState.PRUNED)
      logging.info('trial %d: pruned at step %d', number, pruned_at)
      return
    if status == 0:
      about = files.read_sealed(run / RUN, 'what is known of the run')
      trial.set_user_attr('commit', about['commit'])
      _complete(sweep, trial, rows_with(run, sweep.space.objective))
      return
    if stop:
      break
    if status != EXIT_STATUS:  # Otherwise another process has stopped it, and it is started again.
      _fail(sweep, trial, _reason(status, run.with_name(f'{number}.log')))
      return
  sweep.put_back(trial)


def reason_of_early_failure(sweep: Sweep, trial: optuna.trial.Trial) -> str | None:
  """Returns why train.py failed before an evaluation, without numbers; None if it did not."""
  record = sweep.all()[number_of(trial)]
  known = record.user_attrs
  if record.state != TrialState.FAIL or record.intermediate_values or 'seconds' not in known:
    return None
  return re.sub(r'\d+', '#', known.get('reason', '')) or None


def rows_with(run: Path, objective: str) -> list[dict[str, float]]:
  """Returns the evaluations that a run has written so far, with NaN where a value is not finite."""
  try:
    lines = (run / METRICS).read_bytes().split(b'\n')[:-1]  # The last line may be incomplete.
  except FileNotFoundError:
    return []
  return [{name: math.nan if value is None else value for name, value in json.loads(line).items()}
          for line in lines if objective.encode() in line]


def _wait_until_free(run: Path, stop: list[str]) -> bool:
  """Waits until no process trains in the directory; returns False if asked to stop before.

  After a worker was killed, its train.py may need a while to save.
  """
  logged = False
  while not stop:
    try:
      with RunLock(run):
        return True
    except UserError as error:
      if not logged:
        logging.info('waiting for another process to leave the run: %s', error)
      logged = True
      time.sleep(_POLL_SECONDS)
  return False


def _train(sweep: Sweep, trial: optuna.trial.Trial, train: TrainConfig, run: Path,
           stop: list[str]) -> tuple[int, int | None]:
  """Runs train.py until it ends, is pruned or is asked to stop.

  The pruner sees all evaluations but the run's last one, each once and in order. So its decision
  does not depend on when this process reads the evaluations.

  Returns:
    The exit status, and the step at which the trial was pruned or None.
  """
  objective = sweep.space.objective
  reported = set(sweep.all()[number_of(trial)].intermediate_values)
  before = [row for row in rows_with(run, objective) if row['step'] in reported]
  if before and not _is_last(before, train) and trial.should_prune():
    return EXIT_STATUS, max(reported)
  began, spent = time.monotonic(), trial.user_attrs.get('seconds', 0.0)
  command = [sys.executable, str(ROOT / 'train.py'), f'--config={run}.py', f'--workdir={run}']
  with run.with_name(f'{run.name}.log').open('ab') as log:
    # In its own session: Slurm sends a signal to this process and to its group, and a second
    # signal would end the training at once.
    process = start(leashed(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
  progress = Progress(number_of(trial), run, objective, train.steps)
  pruned_at, asked, ended = None, False, False
  try:
    while not ended:
      ended = process.poll() is not None  # Before reading the metrics, so that none is missed.
      if pruned_at is None:
        pruned_at = _report(trial, rows_with(run, objective), objective, train, reported)
      if (stop or pruned_at is not None) and not asked:
        process.terminate()
        asked = True
      if not ended:
        progress.log()
        time.sleep(_POLL_SECONDS)
  finally:
    if not ended:
      process.terminate()
      process.wait()  # The next trial may need its memory.
  trial.set_user_attr('seconds', spent + time.monotonic() - began)
  return process.returncode, pruned_at


class Progress:
  """Logs every half minute how far a trial is: its step, its measure and the time that is left."""

  def __init__(self, number: int, run: Path, objective: str, steps: int):
    """Prepares the first line, which is due in half a minute."""
    self._name, self._run, self._objective, self._steps = f'trial {number}', run, objective, steps
    self._logged = time.monotonic()
    self._first: tuple[int, float] | None = None  # The first step that was seen, and its time.

  def log(self):
    """Logs a line if one is due."""
    now = time.monotonic()
    due = now - self._logged >= _QUIET_SECONDS
    if not due and self._first is not None:
      return
    rows = rows_with(self._run, 'step')
    if rows and self._first is None:
      self._first = rows[-1]['step'], now
    if not due:
      return
    self._logged = now
    if not rows:
      logging.info('%s: no step is logged yet', self._name)
      return
    step, (first, since) = rows[-1]['step'], self._first
    parts = [f'step {step}/{self._steps}']
    for name in dict.fromkeys(('train/loss', self._objective)):
      parts += [f'{name} {row[name]:.4g}' for row in rows[::-1] if name in row][:1]
    if first < step < self._steps:
      left = (now - since) / (step - first) * (self._steps - step)
      parts.append(f'{tqdm.format_interval(left)} left')
    logging.info('%s: %s', self._name, '  '.join(parts))


def _report(trial: optuna.trial.Trial, rows: list[dict[str, float]], objective: str,
            train: TrainConfig, reported: set[int]) -> int | None:
  """Reports new evaluations, and returns the step at which the pruner ends the trial, or None."""
  for number, row in enumerate(rows, 1):
    step = row['step']
    if step not in reported:
      reported.add(step)
      trial.report(row[objective], step)
      if not _is_last(rows[:number], train) and trial.should_prune():
        return step
  return None


def _is_last(rows: list[dict[str, float]], train: TrainConfig) -> bool:
  """Returns whether a run ends with the last of its evaluations so far."""
  if train.best_by:
    rows = [row | {BEST_BY: train.best_by} for row in rows]
  return rows[-1]['step'] >= train.steps or is_out_of_patience(rows, train.patience)


def _complete(sweep: Sweep, trial: optuna.trial.Trial, rows: list[dict[str, float]]):
  """Stores the best evaluation of a run by the objective; ties in BLEU and F1 go by the loss."""
  objective = sweep.space.objective
  finite = [row for row in rows if not math.isnan(row[objective])]
  if objective in ('valid/bleu', 'valid/f1'):
    best = best_evaluation(finite)
  else:
    sign = 1 if sweep.space.direction == 'maximize' else -1
    best = max(finite, key=lambda row: sign * row[objective], default=None)
  if best is None:
    _fail(sweep, trial, f'{objective} was never a finite number')
    return
  trial.set_user_attr('step', best['step'])
  sweep.finish(trial, TrialState.COMPLETE, best[objective])
  logging.info('trial %d: complete, %s %.4g at step %d', number_of(trial), objective,
               best[objective], best['step'])


def _fail(sweep: Sweep, trial: optuna.trial.Trial, reason: str):
  trial.set_user_attr('reason', reason)
  sweep.finish(trial, TrialState.FAIL)
  logging.warning('trial %d: failed: %s', number_of(trial), reason)


def _reason(status: int, log: Path) -> str:
  """Returns why train.py ended: the signal, its last error or its last line."""
  if status < 0:
    name = signal.Signals(-status).name
    return f'train.py was ended by {name}' + ', perhaps out of memory' * (name == 'SIGKILL')
  with log.open('rb') as file:
    file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
    lines = [line for line in file.read().decode(errors='replace').splitlines() if line.strip()]
  errors = [line.removeprefix('error: ') for line in lines if line.startswith('error: ')]
  return (errors or lines or ['train.py printed nothing'])[-1]
