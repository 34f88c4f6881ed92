"""Commands that run as children of another, and are asked to stop when that is."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from transformer.errors import Preempted
from transformer.training.preemption import EXIT_STATUS, SIGNALS

# Linux sends a process the signal 15, SIGTERM, when its parent is gone, once it has asked for
# that; Python has no word for it. What comes in its place, by exec, keeps it.
_LEASH = """
import ctypes, os, sys
if sys.platform == 'linux':
  ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
  sys.exit(75)
os.execv(sys.argv[2], sys.argv[2:])
"""


def leashed(command: Sequence[str]) -> list[str]:
  """A command line for a child, which on Linux gets SIGTERM when this process is gone."""
  return [sys.executable, '-c', _LEASH, str(os.getpid()), *command]


def run(command: Sequence[str], **options) -> int:
  """Runs a command to its end, and passes on to it the signals that ask this process to stop.

  Args:
    command: what to run.
    **options: of `subprocess.Popen`.

  Returns:
    Its exit status.

  Raises:
    Preempted: it was asked to stop, and did.
  """
  children: list[subprocess.Popen] = []
  with passing_on_signals(children) as asked:
    add(children, asked, command, **options)
    status = children[0].wait()
  if asked or status == EXIT_STATUS:
    raise preempted(asked)
  return status


def start(command: Sequence[str], **options) -> subprocess.Popen:
  """Starts a command in a session of its own, so that a terminal's Ctrl-C reaches it only once."""
  return subprocess.Popen(command, start_new_session=True, **options)


def add(children: list[subprocess.Popen], asked: Sequence[str], command: Sequence[str], **options):
  """Starts a command as one more of the children that `passing_on_signals` has.

  Args:
    children: what it was given; the command is added to them.
    asked: what it yields; of a signal that came meanwhile the command is told by SIGTERM.
    command: what to run.
    **options: of `subprocess.Popen`.
  """
  children.append(start(command, **options))
  if asked:
    children[-1].terminate()


@contextlib.contextmanager
def passing_on_signals(children: Sequence[subprocess.Popen]) -> Iterator[list[str]]:
  """Passes on to children the signals that ask this process to stop.

  Args:
    children: those that were started; may grow meanwhile.

  Yields:
    The names of the signals that have come, which grows too.
  """
  asked: list[str] = []

  def pass_on(number, frame):
    del frame
    asked.append(signal.Signals(number).name)
    for child in children:
      child.send_signal(number)  # Does nothing to one that has ended.

  before = {number: signal.signal(number, pass_on) for number in SIGNALS}
  try:
    yield asked
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


def preempted(asked: Sequence[str]) -> Preempted:
  """What to raise when children were asked to stop, by us or by others, and did."""
  why = f'stopped by {asked[0]}' if asked else 'what it ran was stopped'
  return Preempted(f'{why}; the same command goes on from there')
