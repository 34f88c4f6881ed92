"""The workers of a sweep: what one does, and how several are started."""

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launch import sbatch
from launch.sweeping import results
from launch.sweeping.journal import TRIALS, Sweep
from launch.sweeping.processes import Stop, share
from launch.sweeping.trials import run_trial
from transformer.child_process import leashed, start
from transformer.errors import Preempted, UserError

_POLL_SECONDS = 0.5
LOGS = 'workers'


def work(sweep: Sweep, stop: Stop, alone: bool, after: Callable[[], None] = lambda: None):
  """Runs one trial after the other, until none is left.

  Args:
    sweep: an open one.
    stop: looked at all the time.
    alone: end when there is none to take, rather than wait for those that others run, which may
      be left.
    after: called after each trial.

  Raises:
    Preempted: it was asked to stop.
  """
  while not stop.requested:
    with contextlib.ExitStack() as stack:
      trial = sweep.claim(stack)
      if trial is not None:
        run_trial(sweep, trial, stop)
    if trial is not None:
      after()
    elif alone or not sweep.unfinished():
      return
    else:
      time.sleep(_POLL_SECONDS)
  raise Preempted(f'stopped by {stop.requested}; its trial waits for the next start')


def take_share(worker: int, workers: int):
  """Keeps this process, and what it starts, to its part of the machine's cores and GPUs."""
  cores = os.sched_getaffinity(0) if hasattr(os, 'sched_getaffinity') else {0}
  cores, environment = share(worker, workers, cores, os.environ)
  os.environ.update(environment)
  if hasattr(os, 'sched_setaffinity'):
    os.sched_setaffinity(0, cores)


def run_workers(sweep: Sweep, commands: Sequence[Sequence[str]], stop: Stop, command: str):
  """Starts workers on this machine, waits for them, and keeps the page up to date.

  Args:
    sweep: an open one.
    commands: the command line of each worker.
    stop: passed on to them.
    command: for the page.

  Raises:
    Preempted: it was asked to stop, and they have.
    UserError: they have ended, and trials are left.
  """
  # In sessions of their own, lest a terminal's Ctrl-C reach them, and what they start, as well.
  processes = [start(leashed(each), stdin=subprocess.DEVNULL) for each in commands]
  states, asked = None, False
  while any(process.poll() is None for process in processes):
    if stop.requested and not asked:
      asked = True
      for process in processes:
        process.terminate()
    if states != (states := [trial.state for trial in sweep.all()]):
      results.write(sweep, command)
    time.sleep(_POLL_SECONDS)
  results.write(sweep, command)
  left = len(sweep.unfinished())
  if stop.requested:
    raise Preempted(f'stopped by {stop.requested}, {left} of {sweep.trials} trials are left; the '
                    f'same command goes on with them')
  if left:
    statuses = ', '.join(str(process.returncode) for process in processes)
    raise UserError(f'all workers have ended, with status {statuses}, and {left} of '
                    f'{sweep.trials} trials are left; start this again to go on with them')


def slurm_job(workdir: Path, workers: int, told: str, command: Sequence[str]):
  """The command line that submits a job array, and the script that it reads.

  Args:
    workdir: the sweep's.
    workers: how many.
    told: what the user has for sbatch.
    command: that of a worker, without its number.
  """
  return (sbatch.submission('sweep', told, f'--array=0-{workers - 1}',
                            f'--output={workdir / LOGS}/%a.log'),
          sbatch.script(f'{shlex.join(sbatch.with_grace(command))} --worker=$SLURM_ARRAY_TASK_ID',
                        f'{shlex.quote(str(workdir))}/{TRIALS}/*', sbatch.PART_OF_ARRAY))


def worker_command(arguments: Sequence[str], *more: str) -> list[str]:
  """The command line of a worker, by that of the sweep."""
  script = Path(__file__).resolve().parents[1] / 'sweep.py'
  return [sys.executable, str(script), *arguments, *more]
