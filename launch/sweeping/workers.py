"""Starts the workers of a sweep, and runs the trials of one worker."""

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from launch import sbatch
from launch.sweeping import results
from launch.sweeping.processes import share
from launch.sweeping.study import TRIALS, Sweep
from launch.sweeping.trials import reason_of_early_failure, run_trial
from transformer.errors import Preempted, UserError
from transformer.system.child_process import leashed, start

_POLL_SECONDS = 0.5
# So many first trials of a worker that fail at once, for one reason, are not the settings' fault.
_FIRST_TRIALS = 4
LOGS = 'workers'


def work(sweep: Sweep, stop: list[str], alone: bool, command: str):
  """Runs one trial after another until none is left.

  Args:
    sweep: an open sweep.
    stop: from `stop_requests`.
    alone: whether no process waits for this worker, which is then a Slurm job. Such a job
      writes the page after each trial, and ends when no trial is free. Any other worker stays
      until all trials have ended: if a worker is killed, another one takes its trial.
    command: the command that started the sweep, which the page shows.

  Raises:
    Preempted: this worker was asked to stop.
    UserError: its first trials all failed at once, for the same reason.
  """
  reasons: list[str | None] = []
  while not stop:
    with contextlib.ExitStack() as stack:
      trial = sweep.claim(stack)
      if trial is not None:
        run_trial(sweep, trial, stop)
    if trial is not None:
      if alone:
        results.write(sweep, command)
      reasons.append(reason_of_early_failure(sweep, trial))
      if len(reasons) == _FIRST_TRIALS and reasons[0] and len(set(reasons)) == 1:
        raise UserError(f'the first {_FIRST_TRIALS} trials of this worker failed before an '
                        f'evaluation, for one reason: {reasons[0]}; mend it, and start this again '
                        f'to go on with the other trials')
    elif alone or not sweep.unfinished():
      return
    else:
      time.sleep(_POLL_SECONDS)
  raise Preempted(f'stopped by {stop[0]}; the trial waits for the next start')


def take_share(worker: int, workers: int):
  """Limits this process and its children to a part of the machine's cores and GPUs."""
  cores = os.sched_getaffinity(0) if hasattr(os, 'sched_getaffinity') else {0}
  cores, environment = share(worker, workers, cores, os.environ)
  os.environ.update(environment)
  if hasattr(os, 'sched_setaffinity'):
    os.sched_setaffinity(0, cores)


def run_workers(sweep: Sweep, commands: Sequence[Sequence[str]], stop: list[str], command: str):
  """Starts workers on this machine, waits for them, and keeps the page up to date.

  Args:
    sweep: an open sweep.
    commands: the command line of each worker.
    stop: from `stop_requests`; the workers are then asked to stop.
    command: the command that started the sweep, which the page shows.

  Raises:
    Preempted: the workers were asked to stop, and have ended.
    UserError: the workers have ended, and trials are left.
  """
  # In their own sessions, so that a terminal's Ctrl-C does not reach them directly.
  processes = [start(leashed(each), stdin=subprocess.DEVNULL) for each in commands]
  states, asked = None, False
  while any(process.poll() is None for process in processes):
    if stop and not asked:
      asked = True
      for process in processes:
        process.terminate()
    if states != (states := [trial.state for trial in sweep.all()]):
      results.write(sweep, command)
    time.sleep(_POLL_SECONDS)
  results.write(sweep, command)
  left = len(sweep.unfinished())
  if stop:
    raise Preempted(f'stopped by {stop[0]}, {left} of {sweep.trials} trials are left; the same '
                    f'command goes on with them')
  if left:
    statuses = ', '.join(str(process.returncode) for process in processes)
    raise UserError(f'all workers have ended, with status {statuses}, and {left} of '
                    f'{sweep.trials} trials are left; start this again to go on with them')


def slurm_job(workdir: Path, workers: int, options: str, command: Sequence[str]):
  """Returns the command line that submits a job array, and its script.

  Args:
    workdir: the sweep's directory.
    workers: the number of jobs.
    options: the user's options for sbatch.
    command: the command line of a worker, without `--worker`.
  """
  return (sbatch.submission('sweep', options, f'--array=0-{workers - 1}',
                            f'--output={workdir / LOGS}/%a.log'),
          sbatch.script(f'{shlex.join(sbatch.with_grace(command))} --worker=$SLURM_ARRAY_TASK_ID',
                        f'{shlex.quote(str(workdir))}/{TRIALS}/*', sbatch.PART_OF_ARRAY))


def worker_command(arguments: Sequence[str], *more: str) -> list[str]:
  """Returns the command line of a worker, from the flags of the sweep."""
  script = Path(__file__).resolve().parents[1] / 'sweep.py'
  return [sys.executable, str(script), *arguments, *more]
