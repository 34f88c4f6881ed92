"""One trial: train.py in a directory of its own, followed by its metrics and perhaps pruned."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import optuna
from absl import logging
from optuna.trial import TrialState

from launch.sweeping import space
from launch.sweeping.config_file import changed, config_file
from launch.sweeping.journal import TRIALS, Sweep
from launch.sweeping.processes import Stop
from transformer import files
from transformer.child_process import leashed, start
from transformer.config import Config
from transformer.errors import UserError
from transformer.training.lock import RunLock
from transformer.training.patience import best_evaluation
from transformer.training.preemption import EXIT_STATUS
from transformer.training.run_directory import METRICS

ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.2
_LOG_TAIL = 1 << 16


class _Followed(NamedTuple):
  """How a process ended: its exit status, and the step at which it was pruned, if it was."""

  status: int
  pruned: int | None


def run_trial(sweep: Sweep, trial: optuna.trial.Trial, stop: Stop):
  """Trains a trial to its end, and notes what came of it; or puts it back when asked to stop.

  The trial's value is the best of its evaluations. What it is like, and how it went, are
  kept with it in the journal, as `settings`, `step`, `seconds` and `reason`.

  Args:
    sweep: which it is of.
    trial: from `Sweep.claim`.
    stop: looked at while it trains.
  """
  number = trial.number
  try:
    config = _config(sweep, trial)
  except UserError as error:
    _fail(sweep, trial, str(error))
    return
  run = sweep.folder / TRIALS / str(number)
  settings = trial.user_attrs['settings']
  docstring = f'Trial {number} of a sweep with {sweep.space.filename}.'
  files.write(run.with_name(f'{number}.py'), config_file(docstring, config, settings))
  logging.info('trial %d: %s', number, ', '.join(
      f'{name} {value}' for name, value in settings.items()))
  while _is_free(run, stop):
    ended = _follow(sweep, trial, config.train.steps, run, stop)
    if ended.pruned is not None:
      trial.set_user_attr('step', ended.pruned)
      sweep.finish(trial, TrialState.PRUNED)
      logging.info('trial %d: pruned at step %d', number, ended.pruned)
      return
    if ended.status == 0:
      _complete(sweep, trial, rows_with(run, sweep.space.objective))
      return
    if stop.requested:
      break
    if ended.status != EXIT_STATUS:  # Else someone else has asked it to stop, and it is not done.
      _fail(sweep, trial, _reason(ended.status, run.with_name(f'{run.name}.log')))
      return
  sweep.put_back(trial)


def rows_with(run: Path, objective: str) -> list[dict[str, float]]:
  """The evaluations that a run has written so far; NaN for what was no finite number."""
  try:
    lines = (run / METRICS).read_bytes().split(b'\n')[:-1]  # The last may not be whole yet.
  except FileNotFoundError:
    return []
  return [{name: math.nan if value is None else value for name, value in json.loads(line).items()}
          for line in lines if objective.encode() in line]


def _config(sweep: Sweep, trial: optuna.trial.Trial) -> Config:
  """What the trial is trained with.

  Raises:
    UserError: a config refuses what was drawn, or it cannot be drawn.
  """
  settings = trial.user_attrs.get('settings') or space.draw(sweep.space, trial)
  trial.set_user_attr('settings', settings)
  return changed(sweep.config, settings)


def _is_free(run: Path, stop: Stop) -> bool:
  """Waits for a process that still trains there, as one may whose worker was killed."""
  told = False
  while not stop.requested:
    try:
      with RunLock(run):
        return True
    except UserError as error:
      if not told:
        logging.info('waiting for the run to be left: %s', error)
      told = True
      time.sleep(_POLL_SECONDS)
  return False


def _follow(sweep: Sweep, trial: optuna.trial.Trial, steps: int, run: Path,
            stop: Stop) -> _Followed:
  """Trains in one process until it ends, on its own or because it is asked to.

  Every evaluation before the last step is put to the pruner, in order and once a process,
  so that what it says depends on them alone and not on when they are seen here.
  """
  reported = dict(sweep.all()[trial.number].intermediate_values)
  if reported and max(reported) < steps and trial.should_prune():
    return _Followed(EXIT_STATUS, max(reported))
  began, before = time.monotonic(), trial.user_attrs.get('seconds', 0.0)
  pruned, asked, seen = None, False, None
  command = [sys.executable, str(ROOT / 'train.py'), f'--config={run}.py', f'--workdir={run}']
  with run.with_name(f'{run.name}.log').open('ab') as log:
    # In a session of its own, lest a signal that Slurm sends to this process and to its group
    # reach it twice, and the second time ends it at once.
    process = start(leashed(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
  ended = False
  try:
    while not ended:
      ended = process.poll() is not None  # Asked first, lest the last evaluation be missed.
      now = _changed_at(run / METRICS)
      if now != seen and pruned is None:
        seen = now
        for row in rows_with(run, sweep.space.objective):
          step, value = row['step'], row[sweep.space.objective]
          if step in reported:
            continue
          reported[step] = value
          trial.report(value, step)
          if step < steps and trial.should_prune():
            pruned = step
            break
      if (stop.requested or pruned is not None) and not asked:
        process.terminate()
        asked = True
      if not ended:
        time.sleep(_POLL_SECONDS)
  finally:
    if not ended:
      process.terminate()
  trial.set_user_attr('seconds', before + time.monotonic() - began)
  return _Followed(process.returncode, pruned)


def _changed_at(path: Path):
  try:
    about = path.stat()
  except FileNotFoundError:
    return None
  return about.st_mtime_ns, about.st_size


def _complete(sweep: Sweep, trial: optuna.trial.Trial, rows: list[dict[str, float]]):
  """Notes the best of a run's evaluations: by BLEU, the one that the run itself calls the best."""
  objective = sweep.space.objective
  finite = [row for row in rows if not math.isnan(row[objective])]
  best = (best_evaluation(finite) if objective == 'valid/bleu'
          else min(finite, key=lambda row: row[objective], default=None))
  if best is None:
    _fail(sweep, trial, f'{objective} was never a finite number')
    return
  trial.set_user_attr('step', best['step'])
  sweep.finish(trial, TrialState.COMPLETE, best[objective])
  logging.info('trial %d: complete, %s %.4g at step %d', trial.number, objective, best[objective],
               best['step'])


def _fail(sweep: Sweep, trial: optuna.trial.Trial, reason: str):
  trial.set_user_attr('reason', reason)
  sweep.finish(trial, TrialState.FAIL)
  logging.warning('trial %d: failed: %s', trial.number, reason)


def _reason(status: int, log: Path) -> str:
  """Why train.py ended: the error that it told last, or its last line."""
  if status < 0:
    name = signal.Signals(-status).name
    return f'train.py was ended by {name}' + ', as where memory runs out' * (name == 'SIGKILL')
  with log.open('rb') as file:
    file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
    lines = [line for line in file.read().decode(errors='replace').splitlines() if line.strip()]
  errors = [line.removeprefix('error: ') for line in lines if line.startswith('error: ')]
  return (errors or lines or ['it said nothing'])[-1]
