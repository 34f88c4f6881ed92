"""The pool of unfinished sentences, where what is left of several batches becomes a full one."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np


class Part(NamedTuple):
  """Sentences at the same place of their searches.

  Attributes:
    kind: only sentences of one kind share a batch.
    t: the number of tokens of each hypothesis.
    chosen: the indices of the sentences, the first rows of the arrays. Other rows are unused.
    sources: what their searches read, a pytree. The first axis is that of the sentences.
    state: the state of their searches, too; scalars are the same for all sentences.
  """

  kind: Any
  t: int
  chosen: Sequence[int]
  sources: Any
  state: Any

  def with_rows(self, rows: Sequence[int], chosen: Sequence[int]) -> 'Part':
    """Returns a copy of some rows, which hold the sentences `chosen`."""
    def chosen_rows(leaf):
      leaf = np.asarray(leaf)
      return leaf[np.asarray(rows)] if leaf.ndim else leaf

    return Part(self.kind, self.t, chosen,
                *jax.tree.map(chosen_rows, (self.sources, self.state)))


class Pool:
  """Hands batches to threads, full ones first, and takes back what they leave unfinished."""

  def __init__(self, new: Sequence[Any], kind_of: Callable[[Any], Any], size: int):
    """Plans the work.

    Args:
      new: batches that have not begun; the last one begins.
      kind_of: gives the kind of the `Part` that is left of a new batch.
      size: number of rows of a batch.
    """
    self._new, self._kind_of, self._size = list(new), kind_of, size
    self._waiting: dict[tuple[Any, int], list[Part]] = {}
    self._running: list[tuple[Any, int]] = []
    self._changed = threading.Condition()
    self._failed = False

  def run(self, compute: Callable[[Any], Part | None], threads: int):
    """Computes everything, in several threads.

    Args:
      compute: takes a new batch, or a `Part` with as many rows as a batch. It returns what is
        unfinished, with a larger `t`; None if nothing is.
      threads: their number.

    Raises:
      Exception: what `compute` has raised; batches that have not begun are left out.
    """
    def work():
      while task := self._take():
        place, batch = task
        left = None
        try:
          left = compute(batch)
        except BaseException:
          self._failed = True
          raise
        finally:
          self._give_back(place, left)

    with ThreadPoolExecutor(threads) as pool:
      try:
        for each in [pool.submit(work) for _ in range(threads)]:
          each.result()
      except BaseException:  # Ctrl-C reaches only this thread.
        self._failed = True
        raise

  def is_alone(self, kind) -> bool:
    """Returns whether only one batch is left that has or will have sentences of a kind."""
    with self._changed:
      places = [*self._waiting, *self._running]
      return not self._new and sum(each == kind for each, _ in places) <= 1

  def _take(self) -> tuple[tuple[Any, int], Any] | None:
    """Returns the place of a batch, which is its kind and t, and the batch; None at the end."""
    with self._changed:
      while not self._failed:
        full = [place for place, parts in self._waiting.items()
                if sum(len(part.chosen) for part in parts) >= self._size]
        if full:
          place = max(full, key=lambda place: place[1])
          batch = self._merged(place)
        elif self._new:
          batch = self._new.pop()
          place = self._kind_of(batch), 0
        elif place := self._complete():
          batch = self._merged(place)
        elif self._running:
          self._changed.wait()
          continue
        else:
          break
        self._running.append(place)
        return place, batch
    return None

  def _complete(self) -> tuple[Any, int] | None:
    """Returns a place of the pool that nothing can be added to any more."""
    places = [*self._waiting, *self._running]
    return next(((kind, t) for kind, t in self._waiting
                 if not any(kind == other and earlier < t for other, earlier in places)), None)

  def _give_back(self, place, left: Part | None):
    with self._changed:
      self._running.remove(place)
      if left:
        self._waiting.setdefault((left.kind, left.t), []).append(left)
      self._changed.notify_all()

  def _merged(self, place) -> Part:
    """Takes as many sentences from a place as a batch has rows, or all."""
    waiting, taken, free = self._waiting.pop(place), [], self._size
    while waiting and free:
      part = waiting.pop()
      if (count := len(part.chosen)) > free:
        waiting.append(part.with_rows(range(free, count), part.chosen[free:]))
        part = part.with_rows(range(free), part.chosen[:free])
      taken.append(part)
      free -= len(part.chosen)
    if waiting:
      self._waiting[place] = waiting
    if free:  # Copies of a sentence take no longer than the sentence.
      taken.append(taken[0].with_rows([0] * free, []))
    return Part(*place, [index for part in taken for index in part.chosen], *jax.tree.map(
        lambda *leaves: np.concatenate(leaves) if leaves[0].ndim else leaves[0],
        *[(part.sources, part.state) for part in taken]))
