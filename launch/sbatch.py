"""Jobs of Slurm that are asked to stop before their time is up, and queue themselves again."""

import shlex
import subprocess
from collections.abc import Sequence

from transformer.errors import UserError
from transformer.training.preemption import EXIT_STATUS
from transformer.training.run_directory import CHECKPOINTS, INTERRUPTED

WARNING_SECONDS = 120  # before the time limit; Slurm may be a minute early
# The warning comes to the job's steps. A job that has to give way gets SIGTERM, its steps and this
# shell, which has to outlive them. Who cancels a job wants no more of it, and it is not RUNNING.
# What was asked to stop may be aborted by what has stopped before it. Slurm may be too busy to
# answer.
_SCRIPT = """#!/bin/bash
asked= late= state= left=
trap asked=yes TERM
kept() {{ ls -d {runs}/{{{checkpoints},{interrupted}}}/* 2> /dev/null; }}
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
[ $status -eq {stopped} ] || [ "$asked$late" ] || exit $status
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
_NO_PROGRESS = ('error: in all of its time the job came to no checkpoint, so it is not queued '
                'again; submit it with a longer --time')
_STARTS = 3  # that a job may need before what it encodes and compiles, and keeps, is all there
JOB, PART_OF_ARRAY = '$SLURM_JOB_ID', '${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID'
# srun does not take the number of CPUs from sbatch by itself. Tasks are to leave on their own.
_STEP = 'srun --kill-on-bad-exit=0 ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}'
GRACE = f'--config.train.grace_seconds={WARNING_SECONDS - 20}'


def submission(name: str, told: str, *options: str) -> list[str]:
  """The command line that hands in a script from its standard input.

  Args:
    name: the job's.
    told: what the user has for sbatch, as one text, which comes last and so wins.
    *options: of the job.

  Raises:
    UserError: the text is not one that a shell would understand.
  """
  try:
    more = shlex.split(told)
  except ValueError as error:
    raise UserError(f'--sbatch={told} cannot be taken apart into words: {error}') from error
  return ['sbatch', f'--job-name={name}', '--requeue', f'--signal=USR1@{WARNING_SECONDS}',
          '--open-mode=append', *options, *more]


def script(command: str, runs: str, job: str = JOB) -> str:
  """What a job runs.

  Args:
    command: a command line for the shell, which is run on every task.
    runs: the directory of a run, or a pattern of several, for the shell; a job that leaves no
      checkpoint in them does not get on.
    job: how the shell names the job: `JOB` or `PART_OF_ARRAY`. Slurm lets jobs that are submitted
      by a part of an array inherit that part's name, and the number of one part is that of all.
  """
  return _SCRIPT.format(command=f'{_STEP} {command}', stopped=EXIT_STATUS, job=job, runs=runs,
                        checkpoints=CHECKPOINTS, interrupted=INTERRUPTED, starts=_STARTS,
                        no_progress=_NO_PROGRESS)


def with_grace(command: Sequence[str]) -> list[str]:
  """A command line that trains, and may take most of the warning to stop unless it says."""
  told = any(each.startswith(GRACE.partition('=')[0]) for each in command)
  return [*command, *([] if told else [GRACE])]


def as_shell(command: Sequence[str], text: str) -> str:
  """What a person would type to submit the same."""
  return f"{shlex.join(command)} <<'END'\n{text}END"


def submit(command: Sequence[str], text: str) -> str:
  """Hands a script to Slurm, and returns what that says.

  Raises:
    UserError: there is no Slurm, or it refuses.
  """
  try:
    done = subprocess.run(command, input=text, text=True, check=False, capture_output=True)
  except FileNotFoundError as error:
    raise UserError('the command sbatch is not here; start this where Slurm is') from error
  if done.returncode:
    raise UserError(f'sbatch refused the job: {" ".join(done.stderr.split())}; what it is told is '
                    f'{shlex.join(command[1:])}; see --sbatch')
  return done.stdout.strip()
