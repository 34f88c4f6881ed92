"""Starts the workers of a sweep, and runs the trials of one worker."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from launch import child_process, sbatch
from launch.gpus import visible_gpus
from launch.sweeping import checkpoints, results
from launch.sweeping.study import TRIALS, Sweep
from launch.sweeping.trials import run_trial
from transformer.errors import StoppedBySignal, UserError

_POLL_SECONDS = 0.5
# If this many first trials of a worker fail early for the same reason, their settings are not the
# cause.
_FIRST_TRIALS = 4
_MEMORY = 0.9  # The fraction of a GPU's memory that all its workers use together.
LOGS = 'workers'


def work(sweep: Sweep, is_slurm_job: bool, command: str):
  """Runs one trial after another until none is left.

  Args:
    is_slurm_job: no process waits for a Slurm job, so it writes the page after each trial, and
      exits when no trial is available. Any other worker waits until all trials have finished,
      since it takes over the trials of a killed worker.
    command: the command that started the sweep, shown on the page.

  Raises:
    UserError: the first trials all failed early, for the same reason.
  """
  children = []
  reasons = []
  with child_process.forward_signals(children) as signals:
    while not signals:
      trial = sweep.run_next(lambda trial: run_trial(sweep, trial, children, signals))
      if trial is None:
        if is_slurm_job or not sweep.num_unfinished():
          return
        time.sleep(_POLL_SECONDS)
        continue
      checkpoints.delete_all_but_best(sweep)
      if is_slurm_job:
        results.write(sweep, command)
      reasons.append(_reason_of_early_failure(trial))
      if len(reasons) == _FIRST_TRIALS and reasons[0] and len(set(reasons)) == 1:
        raise UserError(
          f'the first {_FIRST_TRIALS} trials of this worker failed before an evaluation with '
          f'the same error: {reasons[0]}; fix it, then rerun the command to resume with the '
          'other trials'
        )
  raise child_process.stopped_by_signal(signals)


def run_workers(sweep: Sweep, commands: Sequence[Sequence[str]], command: str):
  """Starts workers on this machine, waits for them, and keeps the page up to date.

  Args:
    commands: the command line of each worker.
    command: the command that started the sweep, shown on the page.

  Raises:
    StoppedBySignal: the workers were asked to stop, and have exited.
    UserError: the workers have exited, and trials are left.
  """
  children: list[subprocess.Popen] = []
  with child_process.forward_signals(children) as signals:
    for worker in commands:
      child_process.start_child(children, signals, worker, stdin=subprocess.DEVNULL)
    states = None
    while any(child.poll() is None for child in children):
      if states != (states := [trial.state for trial in sweep.started_trials()]):
        results.write(sweep, command)
      time.sleep(_POLL_SECONDS)
  checkpoints.delete_all_but_best(sweep)
  results.write(sweep, command)
  unfinished = f'{sweep.num_unfinished()} of {sweep.num_trials} trials are left'
  if signals:
    raise StoppedBySignal(
      f'stopped by {signals[0]}, {unfinished}; rerun the command to resume'
    )
  if sweep.num_unfinished():
    statuses = ', '.join(str(child.returncode) for child in children)
    raise UserError(
      f'all workers ended, with status {statuses}, and {unfinished}; rerun the command to resume'
    )


def slurm_job(workdir: Path, workers: int, options: str, command: Sequence[str]):
  """Returns the command line that submits an array of `workers` jobs, and the job's script."""
  # Slurm expands % in the name of an output file.
  logs = str(workdir / LOGS).replace('%', '%%')
  return (
    sbatch.submission(
      'sweep', options, f'--array=0-{workers - 1}', f'--output={logs}/%a.log'
    ),
    sbatch.script(
      f'{shlex.join(sbatch.with_grace(command))} --worker=$SLURM_ARRAY_TASK_ID',
      f'{shlex.quote(str(workdir))}/{TRIALS}/*',
      sbatch.PART_OF_ARRAY,
    ),
  )


def worker_command(arguments: Sequence[str], *extra: str) -> list[str]:
  """Returns the command line of a worker, given the flags of the sweep."""
  script = Path(__file__).resolve().parents[1] / 'sweep.py'
  return [sys.executable, str(script), *arguments, *extra]


def limit_to_share(worker: int, workers: int):
  """Limits this process and its children to a fraction of the machine's cores and GPUs."""
  cores = os.sched_getaffinity(0) if hasattr(os, 'sched_getaffinity') else {0}
  cores, environment = share_of_machine(worker, workers, cores, os.environ)
  os.environ.update(environment)
  if hasattr(os, 'sched_setaffinity'):
    os.sched_setaffinity(0, cores)


def share_of_machine(
  worker: int, workers: int, cores: Collection[int], environment: Mapping[str, str]
) -> tuple[set[int], dict[str, str]]:
  """Returns the cores of one worker, and the environment variables that assign its GPUs.

  A worker gets one or more GPUs, or a fraction of one GPU's memory.
  """
  changes = {}
  gpus = visible_gpus(environment)
  if gpus:
    changes['CUDA_VISIBLE_DEVICES'] = ','.join(_part(worker, workers, gpus))
    sharers = -(-workers // len(gpus))
    if sharers > 1 and 'XLA_PYTHON_CLIENT_MEM_FRACTION' not in environment:
      changes['XLA_PYTHON_CLIENT_MEM_FRACTION'] = f'{_MEMORY / sharers:.3f}'
  return set(_part(worker, workers, sorted(cores))), changes


def _part(worker: int, workers: int, devices: Sequence) -> Sequence:
  """Returns the devices of one worker; with more workers than devices, workers share them."""
  if workers > len(devices):
    return [devices[worker % len(devices)]]
  return devices[
    worker * len(devices) // workers : (worker + 1) * len(devices) // workers
  ]


def _reason_of_early_failure(trial: FrozenTrial) -> str | None:
  """Returns why train.py failed before an evaluation, digits masked; None if it did not."""
  attributes = trial.user_attrs
  if (
    trial.state != TrialState.FAIL
    or trial.intermediate_values
    or 'seconds' not in attributes
  ):
    return None
  return re.sub(r'\d+', '#', attributes.get('reason', '')) or None
