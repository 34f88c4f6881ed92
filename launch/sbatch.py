"""Jobs of Slurm that are asked to stop before their time is up, and queue themselves again."""

import shlex
import subprocess
from collections.abc import Sequence

from transformer.errors import UserError
from transformer.training.preemption import EXIT_STATUS

WARNING_SECONDS = 120  # before the time limit; Slurm may be a minute early
# The warning comes to the job's steps. A job that has to give way gets SIGTERM, its steps and this
# shell, which has to outlive them. Who cancels a job wants no more of it, and it is not RUNNING.
_SCRIPT = """#!/bin/bash
asked=
trap asked=yes TERM
{command}
status=$?
if [ $status -eq {stopped} ] || [ "$asked" -a $status -gt 128 ]; then
  state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)
  [ "$state" != RUNNING ] || exec scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
"""


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


def script(command: str) -> str:
  """What a job runs.

  Args:
    command: a command line for the shell, which starts what is to be run by srun.
  """
  return _SCRIPT.format(command=command, stopped=EXIT_STATUS)


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
