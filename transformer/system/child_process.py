"""Runs commands as child processes that stop when their parent is asked to stop."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from transformer.errors import Preempted
from transformer.system.signals import EXIT_STATUS, handling

# On Linux, prctl(1, 15) asks for the signal 15, SIGTERM, when the parent has ended. Python has
# no function for it. The request survives exec.
_LEASH = """
import ctypes, os, sys
if sys.platform == 'linux':
  ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
  sys.exit(75)
os.execv(sys.argv[2], sys.argv[2:])
"""


def leashed(command: Sequence[str]) -> list[str]:
  """Returns a command line whose process, on Linux, gets SIGTERM when this process has ended."""
  return [sys.executable, '-c', _LEASH, str(os.getpid()), *command]


def run(command: Sequence[str], **options) -> int:
  """Runs a command to its end, and passes on the signals that ask this process to stop.

  Args:
    command: what to run.
    **options: options of `subprocess.Popen`.

  Returns:
    Its exit status.

  Raises:
    Preempted: a signal stopped the command.
  """
  children: list[subprocess.Popen] = []
  with passing_on_signals(children) as asked:
    add(children, asked, command, **options)
    status = children[0].wait()
  if asked or status == EXIT_STATUS:
    raise preempted(asked)
  return status


def start(command: Sequence[str], **options) -> subprocess.Popen:
  """Starts a command in its own session, so that a terminal's Ctrl-C reaches it only once."""
  return subprocess.Popen(command, start_new_session=True, **options)


def add(children: list[subprocess.Popen], asked: Sequence[str], command: Sequence[str], **options):
  """Starts a command and adds it to the children of `passing_on_signals`.

  Args:
    children: the list that was given to `passing_on_signals`.
    asked: the list that `passing_on_signals` yields. If it names a signal already, the command
      gets SIGTERM.
    command: what to run.
    **options: options of `subprocess.Popen`.
  """
  children.append(start(command, **options))
  if asked:
    children[-1].terminate()


@contextlib.contextmanager
def passing_on_signals(children: Sequence[subprocess.Popen]) -> Iterator[list[str]]:
  """Passes on to children the signals that ask this process to stop.

  Args:
    children: a list of the children, to which `add` adds.

  Yields:
    A list of the names of the signals, which grows with each signal.
  """
  asked: list[str] = []

  def pass_on(number, frame):
    del frame
    asked.append(signal.Signals(number).name)
    for child in children:
      child.send_signal(number)  # Does nothing if the child has ended.

  with handling(pass_on):
    yield asked


def preempted(asked: Sequence[str]) -> Preempted:
  """Returns the error for children that stopped after `asked`, or after a signal of their own."""
  why = f'stopped by {asked[0]}' if asked else 'the command that it ran was stopped'
  return Preempted(f'{why}; the same command goes on from there')
