"""Who is told of a run while it trains: TensorBoard, and the parts that `train.report` names."""

import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from transformer.errors import UserError, optional
from transformer.runs.run_directory import METRICS
from transformer.system.progress import warn

_MOST = 10_000  # A reporter that is so many calls behind gets no more.


class Sample(NamedTuple):
  """A sentence of the validation split as text: the source, a reference and a translation."""

  source: str
  reference: str
  translation: str


class Reporter(threading.Thread):
  """A thread that calls an object told of the run, so that training never waits for it.

  After a fault, the object is left alone. docs/trackers.md says what methods it may have.
  """

  def __init__(self, name: str, make: Callable[[], Any], seconds: float):
    """Waits some seconds until the thread has made the object, and raises its `UserError`."""
    super().__init__(name=name, daemon=True)
    self._make, self._seconds = make, seconds
    self._calls, self._checked = queue.SimpleQueue(), threading.Event()
    self._mistake = self._error = None
    self.start()
    self._checked.wait(seconds)
    self._checked.set()
    if self._mistake:
      raise self._mistake

  def tell(self, method: str, *arguments):
    """Has a method of the object called, if it has it."""
    if self.is_alive() and self._calls.qsize() < _MOST:
      self._calls.put((method, arguments))

  def end(self, error: BaseException | None):
    """Has `close` called after all else, and waits for that."""
    self._error = error
    self._calls.put(None)
    self.join(self._seconds)
    if self.is_alive():
      warn(f'{self.name} is not done within {self._seconds:g} seconds and may lack lines; '
           f'{METRICS} has all')

  def run(self):
    """Makes and calls the object."""
    with optional(f'{self.name} gets nothing more until the next start; {METRICS} has all', warn):
      try:
        part = self._make()
      except UserError as mistake:
        if self._checked.is_set():
          raise
        self._mistake = mistake
        return
      finally:
        self._checked.set()
      try:
        for method, arguments in iter(self._calls.get, None):
          getattr(part, method, _nothing)(*arguments)
      except Exception as fault:
        self._error = fault
        raise
      finally:
        getattr(part, 'close', _nothing)(self._error)


def _nothing(*_):
  """Stands for a method that is not there."""
