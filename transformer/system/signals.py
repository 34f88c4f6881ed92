"""Handles signals that ask a run to stop, from a scheduler or from Ctrl-C."""

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

from transformer.errors import StoppedBySignal

# EX_TEMPFAIL of sysexits.h: a temporary failure; the same command succeeds when it is rerun.
EXIT_STATUS = 75
# A terminal sends these to all its processes: on Ctrl-C, and when it closes. A process started by
# `nohup`, or by `&` in a script, ignores them, since they are meant for other processes.
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)
# SIGUSR1 as in Slurm's --signal=USR1@60.
SIGNALS = (
  signal.SIGTERM,
  signal.SIGUSR1,
  *_OF_TERMINAL,
)
# One signal may arrive twice: sent to the process group, and forwarded by the parent process.
TWICE_SECONDS = 0.5


@contextlib.contextmanager
def handle_signals(handler: Callable) -> Iterator[None]:
  """Handles `SIGNALS` with `handler(signum, frame)`; restores the earlier handlers at the end.

  If the process ignores a signal of the terminal, that signal stays ignored.
  """
  previous_handlers = {
    signum: signal.signal(signum, handler)
    for signum in SIGNALS
    if signum not in _OF_TERMINAL or signal.getsignal(signum) != signal.SIG_IGN
  }
  try:
    yield
  finally:
    for signum, previous in previous_handlers.items():
      signal.signal(signum, previous)


class Signals(contextlib.ExitStack):
  """A context in which the first signal asks the run to stop and the second ends the process.

  At first, a request raises `StoppedBySignal` wherever the main thread is. After `defer`, there is
  state to save, so a request only sets `requested`, except in `interruptible` calls. Python handles
  signals only in the main thread, which may be inside XLA's compiler for minutes. Therefore another
  thread enforces `grace_seconds` and handles the second signal.

  Attributes:
    requested: the name of the first signal; None if there was none.
  """

  def __init__(self, grace_seconds: float = math.inf):
    """Prepares the context; `grace_seconds` is the maximum time from a signal to the exit."""
    super().__init__()
    self.requested: str | None = None
    self._grace = grace_seconds
    self._held = False
    self._raises = True

  def __enter__(self) -> 'Signals':
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    watch = threading.Thread(
      target=self._watch, args=(reader,), name='signals', daemon=True
    )
    self.callback(os.close, reader)
    self.callback(os.close, writer)
    self.callback(watch.join)
    # Ends the thread, since no signal has this number.
    self.callback(os.write, writer, b'\0')
    self.enter_context(handle_signals(self._handle))
    self.callback(
      signal.set_wakeup_fd, signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    )
    watch.start()
    return self

  def defer(self):
    """Makes later signals only set `requested`; raises `StoppedBySignal` if one has arrived."""
    self._held = True
    self._raises = False
    self._check()

  def interruptible(self, function: Callable, *arguments):
    """Returns the result of a function; raises `StoppedBySignal` if a signal has arrived."""
    self._raises = True
    try:
      self._check()
      return function(*arguments)
    finally:
      self._raises = False

  def _check(self):
    if self.requested:
      raise StoppedBySignal(f'stopped by {self.requested}; rerun the command to resume')

  def _handle(self, signum, _):
    """Records the request; Python calls this in the main thread."""
    self.requested = self.requested or signal.Signals(signum).name
    if self._raises:
      self._raises = False
      self._check()

  def _watch(self, reader: int):
    """Reads the number of each signal as it arrives; runs in a thread."""
    first = math.inf
    while True:
      end = first + self._grace
      remaining = None if end == math.inf else max(0.0, end - time.monotonic())
      if not select.select([reader], [], [], remaining)[0]:
        _report(
          f'the work in progress exceeded train.grace_seconds={self._grace:g} and was '
          'interrupted; rerun the command to resume from the last checkpoint'
        )
        os._exit(EXIT_STATUS)  # Ends all threads, too.
      for signum in os.read(reader, 64):
        if not signum:
          return
        if signum not in SIGNALS or time.monotonic() - TWICE_SECONDS < first < math.inf:
          continue
        name = signal.Signals(signum).name
        if first < math.inf:
          _report(
            f'stopped at once by a second signal, {name}; rerun the command to resume from the '
            'last checkpoint'
          )
          os._exit(EXIT_STATUS)
        first = time.monotonic()
        _report(
          f'{name}: the run {"saves a checkpoint and stops" if self._held else "stops"}, within '
          f'{self._grace:g} seconds; a second signal stops it at once'
        )


def _report(message: str):
  """Writes to standard error, without the locks that the main thread may hold."""
  with contextlib.suppress(OSError):
    os.write(2, f'{message}\n'.encode())
