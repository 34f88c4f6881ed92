"""Signals that ask a run to stop: a scheduler's, or a person's Ctrl-C."""

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable

from transformer.errors import Preempted

# EX_TEMPFAIL of sysexits.h: what failed will go well when it is tried again.
EXIT_STATUS = 75
# Slurm and other schedulers, a person at a terminal, Slurm's --signal=USR1@60.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Signals:
  """While it is entered, the first signal asks the run to stop, and the second ends the process.

  A request first means that `Preempted` is raised wherever the main thread is. From
  `hold` on it only shows in `requested`, since there is something to save, but for
  calls that are `interruptible`. Python runs a handler only between two steps of the
  main thread, which may be in XLA's compiler for minutes. So a thread of its own
  watches the clock and waits for the second signal.
  """

  def __init__(self, grace_seconds: float = math.inf):
    """Gets ready; signals are only heard once it is entered.

    Args:
      grace_seconds: the time from the first signal to when the process has ended.
    """
    self.requested: str | None = None
    self._grace = grace_seconds
    self._held = False
    self._raises = True
    self._raised = False

  def __enter__(self) -> 'Signals':
    self._reader, self._writer = os.pipe()
    os.set_blocking(self._writer, False)
    self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
    self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
    self._thread = threading.Thread(target=self._watch, name='signals', daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_):
    signal.set_wakeup_fd(self._wakeup)
    for number, handler in self._before.items():
      signal.signal(number, handler)
    os.write(self._writer, b'\0')  # No signal has this number.
    self._thread.join()
    os.close(self._reader)
    os.close(self._writer)

  def hold(self):
    """From here on, a signal waits until `requested` is looked at.

    Raises:
      Preempted: one has come already.
    """
    self._held, self._raises = True, False
    if self.requested:
      raise self._preempted()

  def interruptible(self, function: Callable, *arguments):
    """Calls a function whose work is lost if a signal comes before it returns.

    Returns:
      What the function returns.

    Raises:
      Preempted: a signal came, now or before.
    """
    self._raises = True
    try:
      if self.requested:
        raise self._preempted()
      return function(*arguments)
    finally:
      self._raises = False

  def _handle(self, number, frame):
    """Runs in the main thread, once that gets there."""
    del frame
    self.requested = self.requested or signal.Signals(number).name
    if self._raises and not self._raised:
      self._raised = True
      raise self._preempted()

  def _preempted(self) -> Preempted:
    return Preempted(f'stopped by {self.requested}; the same command goes on with the run')

  def _watch(self):
    """Runs in a thread, which gets the number of every signal as it comes."""
    asked, deadline = False, math.inf
    while True:
      remaining = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
      if not select.select([self._reader], [], [], remaining)[0]:
        _end(f'what was under way took longer than train.grace_seconds={self._grace:g}; stopped '
             f'without: the same command goes on from the last checkpoint')
      for number in os.read(self._reader, 64):
        if not number:
          return
        if number not in SIGNALS:
          continue
        name = signal.Signals(number).name
        if asked:
          _end(f'stopped at once by a second signal, {name}: the same command goes on from the '
               f'last checkpoint')
        asked, deadline = True, time.monotonic() + self._grace
        self.requested = self.requested or name
        does = 'saves where it is and stops' if self._held else 'stops'
        _tell(f'{name}: the run {does}, within {self._grace:g} seconds; a second signal stops it '
              f'at once')


def _tell(message: str):
  """Writes to standard error, if it can, without the locks that the main thread may hold."""
  with contextlib.suppress(OSError):
    os.write(2, f'{message}\n'.encode())


def _end(message: str):
  """Ends the process, whatever its other threads are doing."""
  _tell(message)
  os._exit(EXIT_STATUS)
