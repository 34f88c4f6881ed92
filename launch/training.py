"""What train.py is told by those that start it in several processes."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from transformer import command_line
from transformer.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
_BEHIND = ('what train.py is to be given must stand after --, such as '
           '-- --config=configs/base.py --workdir=DIR')


def run(main: Callable[[Sequence[str]], None]):
  """Runs a command that hands what stands after `--` to train.py; see `command_line.run`."""
  command_line.run(main, takes_arguments=True, hint=_BEHIND)


def checked(arguments: Sequence[str], *more: str) -> list[str]:
  """The arguments of train.py in each of several processes, once it has said they are well.

  Args:
    arguments: what it is to be given.
    *more: what it is given for the check alone.

  Raises:
    UserError: there are none.
    SystemExit: train.py refuses them, and has said why.
  """
  if not arguments:
    raise UserError(_BEHIND)
  command = [sys.executable, str(ROOT / 'train.py'), *arguments, *more, '--check']
  if subprocess.run(command, check=False).returncode:
    raise SystemExit(1)
  return ['--distributed', *arguments]


def workdir(arguments: Sequence[str]) -> str | None:
  """The directory of the run, if the arguments of train.py name one."""
  parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
  parser.add_argument('--workdir', '-workdir', nargs='?', type=os.path.expanduser)
  return parser.parse_known_args(arguments)[0].workdir
