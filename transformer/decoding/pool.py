"""The engine of searches: batches in parts, and a pool where what is left of several is joined."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.decoding.search_programs import SearchPrograms, State
from transformer.ops.search import Hypotheses

# A batch goes on as it is while at least this share of its rows is unfinished, since copies of them
# take about as long as a token.
_FULL = 0.75


class Kind(NamedTuple):
  """What sentences that share a batch have in common."""

  programs: SearchPrograms
  length: int  # of the padded encoded sources
  form: Any  # of the arrays of their constraint; None without one


class Part(NamedTuple):
  """Sentences at the same place of their searches.

  Attributes:
    kind: only sentences of one kind share a batch.
    t: the number of tokens of each hypothesis.
    chosen: the indices of the sentences, the first rows of the arrays. Other rows are unused.
    state: of their searches, a pytree whose arrays have the sentences for their first axis; scalars
      are the same for all sentences. None where they have not begun.
  """

  kind: Any
  t: int
  chosen: Sequence[int]
  state: Any = None

  def with_rows(self, rows: Sequence[int], chosen: Sequence[int]) -> 'Part':
    """Returns a copy of some rows, which hold the sentences `chosen`."""
    def chosen_rows(leaf):
      leaf = np.asarray(leaf)
      return leaf[np.asarray(rows)] if leaf.ndim else leaf

    return self._replace(chosen=chosen, state=jax.tree.map(chosen_rows, self.state))


def search_parts(parts: Sequence[Part], begin: Callable[[Part], State],
                 given: Mapping[SearchPrograms, tuple[Any, Any]],
                 write: Callable[[Hypotheses, int, int], None], size: int, threads: int):
  """Searches for the translations of batches, part by part.

  Args:
    parts: the batches, which have not begun; the last ones begin first.
    begin: gives the state of a batch before the first token.
    given: the parameters, and the tables of the constraint, for the programs of a search.
    write: takes hypotheses, a row and the index of the sentence whose result is there.
    size: number of rows of a batch.
    threads: number of batches that are computed side by side. Between the parts, the unfinished
      sentences of several batches join. 0 is one batch after the other, each to its end, so that
      several processes run the same programs in the same order.
  """
  def compute(part: Part) -> Part | None:
    t, chosen, programs = part.t, dict(enumerate(part.chosen)), part.kind.programs
    state = begin(part) if part.state is None else part.state
    while chosen and (t == part.t or not threads or len(chosen) >= _FULL * size
                      or pool.is_alone(part.kind)):
      state, t, done_B, found = programs.advance(*given[programs], state, t, bool(threads))
      # Reading an array whose computation lacked memory would end the process without a word.
      done_B = jax.device_get(jax.block_until_ready(done_B))
      if finished := [row for row in chosen if done_B[row]]:
        found = jax.device_get(found)
        for row in finished:
          write(found, row, chosen.pop(row))
    if not chosen:
      return None
    return Part(part.kind, t, [], state).with_rows(list(chosen), list(chosen.values()))

  pool = Pool(parts, size)
  pool.run(compute, threads)


class Pool:
  """Hands out batches of `size` rows, full ones first, and takes back what is left unfinished."""

  def __init__(self, new: Sequence[Part], size: int):
    """Takes the batches that have not begun; the last one begins."""
    self._new, self._size = list(new), size
    self._waiting: dict[tuple[Any, int], list[Part]] = {}
    self._running: list[tuple[Any, int]] = []
    self._changed = threading.Condition()
    self._failed = False

  def run(self, compute: Callable[[Part], Part | None], threads: int):
    """Computes everything, in several threads; in this one if their number is 0.

    After an error in `compute`, batches that have not begun are left out. It returns what is
    unfinished of a batch, with a larger `t`; None if nothing is.
    """
    def work():
      while part := self._take():
        left = None
        try:
          left = compute(part)
        except BaseException:
          self._failed = True
          raise
        finally:
          self._give_back(part, left)

    if not threads:
      work()
      return
    with ThreadPoolExecutor(threads) as executor:
      try:
        for future in [executor.submit(work) for _ in range(threads)]:
          future.result()
      except BaseException:  # Ctrl-C reaches only this thread.
        self._failed = True
        raise

  def is_alone(self, kind) -> bool:
    """Returns whether only one batch is left that has or will have sentences of a kind."""
    with self._changed:
      places = [*self._waiting, *self._running]
      return not self._new and sum(kind == other for other, _ in places) <= 1

  def _take(self) -> Part | None:
    """Returns the next batch; None at the end."""
    with self._changed:
      while not self._failed:
        full = [place for place, parts in self._waiting.items()
                if sum(len(part.chosen) for part in parts) >= self._size]
        if full:
          part = self._joined(max(full, key=lambda place: place[1]))
        elif self._new:
          part = self._new.pop()
        elif place := self._complete():
          part = self._joined(place)
        elif self._running:
          self._changed.wait()
          continue
        else:
          break
        self._running.append((part.kind, part.t))
        return part
    return None

  def _complete(self) -> tuple[Any, int] | None:
    """Returns a place of the pool that nothing can be added to any more."""
    places = [*self._waiting, *self._running]
    return next(((kind, t) for kind, t in self._waiting
                 if not any(kind == other and earlier < t for other, earlier in places)), None)

  def _give_back(self, part: Part, left: Part | None):
    with self._changed:
      self._running.remove((part.kind, part.t))
      if left:
        self._waiting.setdefault((left.kind, left.t), []).append(left)
      self._changed.notify_all()

  def _joined(self, place) -> Part:
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
    return Part(*place, [index for part in taken for index in part.chosen], jax.tree.map(
        lambda *leaves: np.concatenate(leaves) if leaves[0].ndim else leaves[0],
        *[part.state for part in taken]))
