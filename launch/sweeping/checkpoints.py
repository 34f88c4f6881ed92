"""Deletes the checkpoints of the trials of a sweep, except the best trials.

A finished trial never runs again. A trial that is not among the N best can never be among them
later, since the values of complete trials do not change. So several workers may delete at the same
time, each according to the trials that it knows. Other files of a trial are kept.

The checkpoint folder is first renamed, atomically, and then emptied. So no process reads a partly
deleted folder, an interrupted deletion can be continued, and the remaining name records the
deletion.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from absl import logging

from launch.sweeping.records import is_abandoned
from launch.sweeping.study import TRIALS, Sweep
from transformer.errors import UserError, type_and_message
from transformer.runs.lock import run_lock
from transformer.runs.run_directory import CHECKPOINTS

DELETED = f'{CHECKPOINTS}.deleted'


def delete_all_but_best(sweep: Sweep):
  """Deletes the checkpoints of finished trials that are not among the `keep_best` best.

  Checkpoints of a run that a process is training stay until the next call. Failures to delete are
  logged as warnings.
  """
  if sweep.keep_best is None:
    return
  best = {trial.number for trial in sweep.ranked()[: sweep.keep_best]}
  for number, run in _ended(sweep):
    if number not in best and (_holds_some(run) or any((run / DELETED).glob('*'))):
      try:
        with run_lock(run):
          _delete(run)
      except UserError as error:
        logging.info('the checkpoints of trial %d stay for now: %s', number, error)
      except OSError as error:
        logging.warning(
          'the checkpoints of trial %d are not deleted; the next trial that finishes tries '
          'again: %s',
          number,
          type_and_message(error),
        )


def check_not_deleted(run: Path):
  """Raises `UserError` if a trial must resume, but its checkpoints were deleted."""
  if (run / DELETED).exists() and not _holds_some(run):
    raise UserError(
      f'the trial in {run} must resume, but --keep_best deleted its checkpoints after it '
      'finished: the list of trials is older than the runs; restore the newer list, or remove '
      f'{run} to train this trial again'
    )


def state(run: Path) -> str:
  """Returns `kept`, `deleted`, or '' for a run without checkpoints."""
  if _holds_some(run):
    return 'kept'
  return 'deleted' if (run / DELETED).exists() else ''


def summary(sweep: Sweep) -> str:
  """Returns a human-readable list of trials that have checkpoints here; '' if none were deleted."""
  states = {number: state(run) for number, run in _ended(sweep)}
  deleted = [number for number, status in states.items() if status == 'deleted']
  if not deleted:
    return ''
  kept = (
    ', '.join(str(number) for number, status in states.items() if status == 'kept')
    or 'none'
  )
  text = f'the checkpoints of {len(deleted)} trial(s) are deleted; trials that keep them: {kept}'
  missed = [
    trial.number
    for trial in sweep.ranked()[: sweep.keep_best or 1]
    if trial.number in deleted
  ]
  if missed:
    text += (
      f'; {", ".join(map(str, missed))} should also be kept, but their checkpoints were deleted '
      'when fewer were to be kept'
    )
  return text


def _ended(sweep: Sweep) -> Iterator[tuple[int, Path]]:
  """Yields the numbers and runs of the trials that have a value or a reason for failing."""
  for trial in sweep.started_trials():
    if trial.state.is_finished() and not is_abandoned(trial):
      yield trial.number, sweep.folder / TRIALS / str(trial.number)


def _holds_some(run: Path) -> bool:
  return any((run / CHECKPOINTS).glob('*'))


def _delete(run: Path):
  """Deletes the checkpoints of a run, once: checkpoints that a user adds later are kept."""
  deleted = run / DELETED
  if not deleted.exists():
    (run / CHECKPOINTS).rename(deleted)
  for path in deleted.iterdir():
    if path.is_dir():
      shutil.rmtree(path)
    else:
      path.unlink()
