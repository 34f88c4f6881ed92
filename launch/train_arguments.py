"""Checks the train.py arguments that follow `--` in a launcher's command line."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from transformer.errors import UserError
from transformer.system import command_line

ROOT = Path(__file__).resolve().parents[1]
_HINT = (
  'the arguments of train.py must follow --, such as -- --config=configs/quickstart.py '
  '--workdir=DIR'
)


def run_launcher(main: Callable[[Sequence[str]], None]):
  """Runs the `main` of a launcher that takes arguments after `--`; see `command_line.run`."""
  command_line.run(main, takes_arguments=True, hint=_HINT, use_compilation_cache=False)


def distributed_arguments(
  arguments: Sequence[str], *extra: str, summary: TextIO | int = subprocess.DEVNULL
) -> list[str]:
  """Checks the arguments of train.py with `train.py --check`, which prints any errors.

  `extra` are arguments only for the check. The summary of the job goes to `summary`, by default
  nowhere.

  Returns:
    The arguments for each process.

  Raises:
    UserError: there are no arguments.
    SystemExit: the check failed.
  """
  if not arguments:
    raise UserError(_HINT)
  command = [sys.executable, str(ROOT / 'train.py'), *arguments, *extra, '--check']
  if subprocess.run(command, check=False, stdout=summary).returncode:
    raise SystemExit(1)
  return ['--distributed', *arguments]
