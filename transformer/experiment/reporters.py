"""Trackers of a run in training: TensorBoard, and the plugins of `train.report`."""

import copy
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from transformer.errors import UserError, warn_on_error
from transformer.runs.run_directory import METRICS
from transformer.system.progress import log_warning


class Sample(NamedTuple):
  """A sentence of the validation set as text: source, reference and translation."""

  source: str
  reference: str
  translation: str


class Reporters:
  """Calls the methods of trackers, which docs/trackers.md lists, in one thread per tracker.

  Waits up to `seconds` for all of them together, at the start and at the end.
  """

  def __init__(self, parts: Mapping[str, Callable], arguments: tuple, seconds: float):
    """Starts all trackers; on a `UserError` within `seconds`, closes them and re-raises it."""
    self._seconds = seconds
    self._all: list[_Reporter] = []
    end = time.monotonic() + seconds
    try:
      for name, part in parts.items():
        self._all.append(_Reporter(name, part, arguments))
      for reporter in self._all:
        reporter.is_checked.wait(end - time.monotonic())
        reporter.is_checked.set()
        if reporter.mistake:
          raise reporter.mistake
    except BaseException as error:  # Also after a signal.
      self.end(error)
      raise

  def tell(self, method: str, *arguments: Any):
    """Queues a method call for all trackers; each gets its own copies of dicts."""
    for reporter in self._all:
      reporter.calls.put((method, [copy.copy(argument) for argument in arguments]))

  def end(self, error: BaseException | None):
    """Queues `close` for all trackers, and waits for them."""
    end = time.monotonic() + self._seconds
    for reporter in self._all:
      reporter.error = error
      reporter.calls.put(None)
    for reporter in self._all:
      reporter.join(end - time.monotonic())
      if reporter.is_alive():
        log_warning(
          f'{reporter.name} did not finish within {self._seconds:g} seconds and may lack lines; '
          f'{METRICS} has all'
        )


class _Reporter(threading.Thread):
  """A thread for one tracker, so that training never waits for it; ends after a failure.

  Attributes:
    calls: methods with their arguments; None ends the thread.
    is_checked: set once the tracker is built, or is no longer waited for.
    mistake: the `UserError` of its constructor, if it was raised in time.
    error: the exception that ended the run or the tracker.
  """

  def __init__(self, name: str, part: Callable, arguments: tuple):
    super().__init__(name=name, daemon=True)
    self._part = part
    self._arguments = arguments
    self.calls = queue.SimpleQueue()
    self.is_checked = threading.Event()
    self.mistake: UserError | None = None
    self.error: BaseException | None = None
    self.start()

  def run(self):
    """Builds the tracker, and calls its methods."""
    with warn_on_error(
      f'{self.name} receives no more lines until the run is restarted; {METRICS} has all',
      log_warning,
    ):
      try:
        part = self._part(*self._arguments)
      except UserError as mistake:
        if self.is_checked.is_set():
          raise
        self.mistake = mistake
        return
      finally:
        self.is_checked.set()
      try:
        for method, arguments in iter(self.calls.get, None):
          getattr(part, method, _ignore)(*arguments)
      except (Exception, SystemExit) as fault:
        self.error = fault
        raise
      finally:
        getattr(part, 'close', _ignore)(self.error)


def _ignore(*_):
  """Replaces a method that a tracker does not have."""
