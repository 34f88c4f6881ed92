"""Runs child processes that stop when their parent is asked to stop."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from transformer.errors import StoppedBySignal
from transformer.system.signals import EXIT_STATUS, handle_signals

# On Linux, prctl(1, 15) requests signal 15, SIGTERM, when the parent exits. Python has no function
# for it. The request survives exec.
_LEASH = """
import ctypes, os, sys
if sys.platform == 'linux':
  ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
  sys.exit(75)
os.execv(sys.argv[2], sys.argv[2:])
"""


def run(command: Sequence[str]) -> int:
  """Runs a command and returns its exit status; raises `StoppedBySignal` if a signal stopped it."""
  children: list[subprocess.Popen] = []
  with forward_signals(children) as signals:
    status = start_child(children, signals, command).wait()
  if signals or status == EXIT_STATUS:
    raise stopped_by_signal(signals)
  return status


def start_child(
  children: list[subprocess.Popen],
  signals: Sequence[str],
  command: Sequence[str],
  **options,
):
  """Starts a command, given the path of its program, with options of `Popen`; returns the process.

  Both lists are from `forward_signals`. The process is appended to `children`, and terminated if a
  signal was already received. It gets its own session, so that a terminal's Ctrl-C reaches it only
  once. On Linux, it receives SIGTERM when this process exits.
  """
  process = subprocess.Popen(
    [sys.executable, '-c', _LEASH, str(os.getpid()), *command],
    start_new_session=True,
    **options,
  )
  children.append(process)
  if signals:
    process.terminate()
  return process


@contextlib.contextmanager
def forward_signals(children: Sequence[subprocess.Popen]) -> Iterator[list[str]]:
  """Forwards stop signals to `children`; both lists may grow.

  Yields:
    The names of the received signals.
  """
  signals: list[str] = []

  def pass_on(signum, _):
    signals.append(signal.Signals(signum).name)
    for child in children:
      child.send_signal(signum)  # Does nothing if the child has exited.

  with handle_signals(pass_on):
    yield signals


@contextlib.contextmanager
def stop_on_signal() -> Iterator[None]:
  """Raises `StoppedBySignal` on a signal while no child runs: before the first or after all."""

  def stop(signum, _):
    raise stopped_by_signal([signal.Signals(signum).name])

  with handle_signals(stop):
    yield


def stopped_by_signal(signals: Sequence[str]) -> StoppedBySignal:
  """Returns the error for children that stopped after `signals`, or on a signal to themselves."""
  reason = f'stopped by {signals[0]}' if signals else 'its command was stopped'
  return StoppedBySignal(f'{reason}; rerun the command to resume')
