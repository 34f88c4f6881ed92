"""Who is told of a run while it trains: TensorBoard, and the parts that `train.report` names."""

import copy
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from transformer.errors import UserError, optional
from transformer.runs.run_directory import METRICS
from transformer.system.progress import warn


class Sample(NamedTuple):
  """A sentence of the validation split as text: the source, a reference and a translation."""

  source: str
  reference: str
  translation: str


class Reporters:
  """Tells objects of the run, by their methods in docs/trackers.md; waits for all together."""

  def __init__(self, parts: Mapping[str, Callable], arguments: tuple, seconds: float):
    """Waits some seconds until they are made; closes them again and raises a `UserError` of one."""
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
    except BaseException as error:  # A signal, too.
      self.end(error)
      raise

  def tell(self, method: str, *arguments: Any):
    """Has a method of each object called, if it has it; each gets dicts of its own."""
    for reporter in self._all:
      reporter.calls.put((method, [copy.copy(argument) for argument in arguments]))

  def end(self, error: BaseException | None):
    """Has `close` called after all else, and waits for that."""
    end = time.monotonic() + self._seconds
    for reporter in self._all:
      reporter.error = error
      reporter.calls.put(None)
    for reporter in self._all:
      reporter.join(end - time.monotonic())
      if reporter.is_alive():
        warn(
          f'{reporter.name} is not done within {self._seconds:g} seconds and may lack lines; '
          f'{METRICS} has all'
        )


class _Reporter(threading.Thread):
  """A thread for one reporter, so that training never waits for it; ends after a fault.

  Attributes:
    calls: methods and their arguments; None is the end.
    is_checked: set once the object is made, or no longer waited for.
    mistake: the `UserError` of its class, if that came in time.
    error: what ended the run, or the reporter.
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
    """Makes and calls the object."""
    with optional(
      f'{self.name} gets nothing more until the next start; {METRICS} has all', warn
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
  """Stands for a method that a reporter does not have."""
