"""Trackers of a training run: TensorBoard, and the plugins of `train.trackers`."""

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


class Trackers:
  """Calls the methods of trackers, which docs/trackers.md lists, in one thread per tracker.

  Waits up to `seconds` for all of them together, at the start and at the end.
  """

  def __init__(
    self, tracker_classes: Mapping[str, Callable], arguments: tuple, seconds: float
  ):
    """Starts all trackers; on a `UserError` within `seconds`, closes them and re-raises it."""
    self._seconds = seconds
    self._threads = []
    end = time.monotonic() + seconds
    try:
      for name, tracker_class in tracker_classes.items():
        self._threads.append(_TrackerThread(name, tracker_class, arguments))
      for thread in self._threads:
        thread.is_started.wait(end - time.monotonic())
        thread.is_started.set()
        if thread.startup_error:
          raise thread.startup_error
    except BaseException as error:  # Also after a signal.
      self.close(error)
      raise

  def notify(self, method: str, *arguments: Any):
    """Queues a method call for all trackers; each gets its own copies of dicts."""
    for thread in self._threads:
      thread.calls.put((method, [copy.copy(argument) for argument in arguments]))

  def close(self, error: BaseException | None):
    """Queues `close` for all trackers, and waits for them."""
    end = time.monotonic() + self._seconds
    for thread in self._threads:
      thread.error = error
      thread.calls.put(None)
    for thread in self._threads:
      thread.join(end - time.monotonic())
      if thread.is_alive():
        log_warning(
          f'{thread.name} did not finish within {self._seconds:g} seconds and may be missing '
          f'entries; {METRICS} is complete'
        )


class _TrackerThread(threading.Thread):
  """A thread for one tracker, so that training never waits for it; ends after a failure.

  Attributes:
    calls: methods with their arguments; None ends the thread.
    is_started: set once the tracker is built, or is no longer waited for.
    startup_error: the `UserError` of its constructor, if it was raised in time.
    error: the exception that ended the run or the tracker.
  """

  def __init__(self, name: str, tracker_class: Callable, arguments: tuple):
    super().__init__(name=name, daemon=True)
    self._tracker_class = tracker_class
    self._arguments = arguments
    self.calls = queue.SimpleQueue()
    self.is_started = threading.Event()
    self.startup_error: UserError | None = None
    self.error: BaseException | None = None
    self.start()

  def run(self):
    """Builds the tracker, and calls its methods."""
    with warn_on_error(
      f'{self.name} receives no more entries until the run is restarted; {METRICS} is complete',
      log_warning,
    ):
      try:
        tracker = self._tracker_class(*self._arguments)
      except UserError as error:
        if self.is_started.is_set():
          raise
        self.startup_error = error
        return
      finally:
        self.is_started.set()
      try:
        for method, arguments in iter(self.calls.get, None):
          getattr(tracker, method, _ignore)(*arguments)
      except (Exception, SystemExit) as error:
        self.error = error
        raise
      finally:
        getattr(tracker, 'close', _ignore)(self.error)


def _ignore(*_):
  """Replaces a method that a tracker does not have."""
