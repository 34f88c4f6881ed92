"""Who is told of a run while it trains: TensorBoard, and the parts that `train.report` names."""

import copy
import functools
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from transformer.errors import UserError, optional
from transformer.runs.run_directory import METRICS
from transformer.system.progress import warn

_MOST = 10_000  # A reporter that is more calls behind gets no more.


class Sample(NamedTuple):
  """A sentence of the validation split as text: the source, a reference and a translation."""

  source: str
  reference: str
  translation: str


class Reporters:
  """Tells objects of the run, by their methods in docs/trackers.md; waits for all together."""

  def __init__(self, parts: Mapping[str, Callable[..., Any]], arguments: tuple, seconds: float):
    """Waits some seconds until they are made; closes them again and raises a `UserError` of one."""
    self._seconds = seconds
    self._all = []
    end = time.monotonic() + seconds
    try:
      for name, part in parts.items():
        self._all.append(_Reporter(name, functools.partial(part, *arguments)))
      for reporter in self._all:
        reporter.checked.wait(end - time.monotonic())
        reporter.checked.set()
        if reporter.mistake:
          raise reporter.mistake
    except BaseException as error:  # A signal, too.
      self.end(error)
      raise

  def tell(self, method: str, *arguments: Any):
    """Has a method of each object called, if it has it; each gets dicts of its own."""
    for reporter in self._all:
      reporter.tell(method, *map(copy.copy, arguments))

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
  """A thread for one reporter, so that training never waits for it; ends after a fault."""

  def __init__(self, name: str, make: Callable[[], Any]):
    super().__init__(name=name, daemon=True)
    self._make = make
    self.calls = queue.SimpleQueue()
    self.checked = threading.Event()
    self.mistake = None
    self.error: BaseException | None = None
    self._is_behind = False
    self.start()

  def tell(self, method: str, *arguments: Any):
    if self.is_alive() and not self._is_behind:
      self.calls.put((method, arguments))
      if self.calls.qsize() > _MOST:
        self._is_behind = True
        warn(f'{self.name} is {_MOST} calls behind and gets no more; {METRICS} has all')

  def run(self):
    """Makes and calls the object."""
    with optional(f'{self.name} gets nothing more until the next start; {METRICS} has all', warn):
      try:
        part = self._make()
      except UserError as mistake:
        if self.checked.is_set():
          raise
        self.mistake = mistake
        return
      finally:
        self.checked.set()
      try:
        for method, arguments in iter(self.calls.get, None):
          getattr(part, method, lambda *_: None)(*arguments)
      except (Exception, SystemExit) as fault:
        self.error = fault
        raise
      finally:
        getattr(part, 'close', lambda _: None)(self.error)
