"""Slurm jobs that stop before their time limit and requeue themselves."""

import re
import shlex
import subprocess
from collections.abc import Sequence

from transformer.errors import UserError
from transformer.runs.run_directory import CHECKPOINTS
from transformer.system.signals import EXIT_STATUS

# Before the time limit; Slurm may send the signal up to a minute earlier.
WARNING_SECONDS = 120
# The shell script of a job. It requeues the job if the command was stopped:
# - Before the time limit, Slurm sends SIGUSR1 to the job's steps, but not to this shell.
# - When Slurm preempts a job, it sends SIGTERM to the steps and to this shell, which traps it.
# - When a user cancels a job, its state is not RUNNING, and it must not be requeued.
# - A slow task may be aborted because the other tasks have left. The status is then above 128. This
#   counts as stopped if the shell received SIGTERM or the time limit is near.
# - squeue and scontrol may fail when Slurm is busy, so both are retried.
_SCRIPT = """#!/bin/bash
preempted= late= state= left=
trap preempted=yes TERM
kept() {{ ls -d {runs}/{checkpoints}/* 2> /dev/null; }}
before=$(kept)
{command}
status=$?
[ $status -eq {stopped} ] || [ $status -gt 128 ] || exit $status
for try in {{1..6}}; do
  read -r state left < <(squeue --noheader --jobs="{job}" --format='%T %L') && break
  sleep 5
done
[[ $left =~ ^[0-3]:[0-9][0-9]$ ]] && late=yes
[[ $state =~ ^(RUNNING|SIGNALING)$ ]] || exit $status
[ $status -eq {stopped} ] || [ "$preempted$late" ] || exit $status
if [ "$late" ] && [ ${{SLURM_RESTART_COUNT:-0}} -ge {starts} ] && [ "$(kept)" = "$before" ]; then
  echo '{no_progress}' >&2
  exit 1
fi
for try in {{1..6}}; do
  scontrol requeue "{job}" && exit
  sleep 5
done
exit $status
"""
_NO_PROGRESS = (
  'error: the job saved no checkpoint before its time limit, so it is not queued '
  'again; submit it with a longer --time'
)
# After this many restarts, each start must save a checkpoint before its time limit. Earlier starts
# need not: the data and the compiled programs that they prepare are cached.
_STARTS = 3
JOB, PART_OF_ARRAY = '$SLURM_JOB_ID', '${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID'
# Each task exits by itself, even if another one fails. srun does not inherit --cpus-per-task from
# sbatch.
_STEP = 'srun --kill-on-bad-exit=0 ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}'
GRACE = f'--config.train.grace_seconds={WARNING_SECONDS - 20}'


def submission(name: str, user_options: str, *options: str) -> list[str]:
  """Returns the command line of sbatch, which reads the script from standard input.

  `user_options` is a string of options, which override the others.
  """
  return [
    'sbatch',
    f'--job-name={name}',
    '--requeue',
    f'--signal=USR1@{WARNING_SECONDS}',
    '--open-mode=append',
    *options,
    *_split(user_options),
  ]


def requested_gpus(user_options: str, nodes: int, tasks: int) -> int | None:
  """Returns the number of GPUs that a job requests; None if the options do not specify it.

  `tasks` is the number of tasks per node.
  """
  words = _split(user_options)
  if any(word.startswith(('--nodes', '-N', '--ntasks', '-n')) for word in words):
    return None
  times = {
    'gres=gpu:': nodes,
    'gpus-per-node=': nodes,
    'gpus-per-task=': nodes * tasks,
    'gpus=': 1,
  }
  for word in words:
    if option := re.fullmatch(
      r'--(gres=gpu:|gpus[a-z-]*=)(?:[A-Za-z][\w.-]*:)?(\d+)', word
    ):
      return int(option[2]) * times[option[1]] if option[1] in times else None
  return None


def _split(user_options: str) -> list[str]:
  try:
    return shlex.split(user_options)
  except ValueError as error:
    raise UserError(
      f'--sbatch={user_options} cannot be split into words: {error}'
    ) from error


def script(command: str, runs: str, job: str = JOB) -> str:
  """Returns the shell script of a job.

  Args:
    command: the command of every task, quoted for the shell.
    runs: the directory of a run, or a shell pattern for several. A job that adds no checkpoint
      there makes no progress.
    job: the job's id, as a shell expression: `JOB`, or `PART_OF_ARRAY` for a job array, where `JOB`
      may name the whole array. The environment does not show which one is right: a job that is
      submitted from within an array inherits the array's variables.
  """
  return _SCRIPT.format(
    command=f'{_STEP} {command}',
    stopped=EXIT_STATUS,
    job=job,
    runs=runs,
    checkpoints=CHECKPOINTS,
    starts=_STARTS,
    no_progress=_NO_PROGRESS,
  )


def with_grace(command: Sequence[str]) -> list[str]:
  """Adds a `train.grace_seconds` that fits the warning signal, unless the command line sets it."""
  is_set = any(word.startswith(GRACE.partition('=')[0]) for word in command)
  return [*command] if is_set else [*command, GRACE]


def as_shell(command: Sequence[str], text: str) -> str:
  """Returns the submission as a command for a shell."""
  return f"{shlex.join(command)} <<'END'\n{text}END"


def submit(command: Sequence[str], text: str) -> str:
  """Submits a script; returns the output of sbatch."""
  try:
    result = subprocess.run(
      command, input=text, text=True, check=False, capture_output=True
    )
  except FileNotFoundError as error:
    raise UserError(
      'the command sbatch is missing here; run this on a machine with Slurm'
    ) from error
  if result.returncode:
    raise UserError(
      f'sbatch rejected the job: {" ".join(result.stderr.split())}; its options are '
      f'{shlex.join(command[1:])}; change them with --sbatch'
    )
  return result.stdout.strip()
