"""The engine of searches: batches in parts, and a pool where what is left of several is joined."""

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.ops.search import Hypotheses

# A batch goes on as it is while at least this share of its rows is unfinished, since copies of them
# take about as long as a token.
_FULL = 0.75


class Part(NamedTuple):
  """A batch of sentences at the same place of their searches.

  Attributes:
    kind: what sentences that share a batch have in common.
    t: the number of tokens of each hypothesis.
    rows: the index of the sentence in each row of the arrays; other rows are unused.
    state: of their searches, a pytree whose arrays have the sentences for their first axis; scalars
      are the same for all sentences. None where they have not begun.
  """

  kind: Any
  t: int
  rows: Mapping[int, int]
  state: Any = None


def search_parts(parts: Sequence[Part], begin: Callable[[Part], Any], advance: Callable[..., Any],
                 write: Callable[[Hypotheses, int, int], None], size: int, threads: int):
  """Searches for the translations of batches, part by part.

  Args:
    parts: the batches, which have not begun; the last ones begin first.
    begin: gives the state of a batch before the first token.
    advance: (kind, state, t, pauses) -> what `SearchPrograms.advance` returns.
    write: takes hypotheses, a row and the index of the sentence whose result is there.
    size: number of rows.
    threads: number of batches that are computed side by side. Between the parts, the unfinished
      sentences of several batches join. 0 is one batch after the other, each to its end, so that
      several processes run the same programs in the same order.
  """
  def step(part: Part) -> Part:
    """Returns the batch at its next stop, without the sentences whose search is over."""
    state = begin(part) if part.state is None else part.state
    state, t, done_B, hypotheses = advance(part.kind, state, part.t, bool(threads))
    # Reading an array whose computation lacked memory would end the process without a word.
    done_B = jax.device_get(jax.block_until_ready(done_B))
    if any(done_B[row] for row in part.rows):
      hypotheses = jax.device_get(hypotheses)
    for row, index in part.rows.items():
      if done_B[row]:
        write(hypotheses, row, index)
    return Part(part.kind, t, {row: index for row, index in part.rows.items() if not done_B[row]},
                state)

  def compute(part: Part, alone: bool = True) -> Part:
    """Returns the batch at its end, or where others should fill it; none can if it is alone."""
    part = step(part)
    while part.rows and (alone or len(part.rows) >= _FULL * size):
      part = step(part)
    return part

  if threads:
    _refill(parts, compute, size, threads)
  else:
    for part in reversed(parts):
      compute(part)


def _refill(new: Sequence[Part], compute: Callable[[Part, bool], Part], size: int, threads: int):
  """Computes batches side by side, and fills up what is left of them with what is left of others.

  After an error, or Ctrl-C, no other part begins.
  """
  new = list(new)
  waiting = {}
  running = {}

  def is_alone(kind) -> bool:
    """Returns whether no other batch has, or will have, sentences of a kind."""
    return not new and all(kind != other for other, _ in [*waiting, *running.values()])

  def take() -> Part | None:
    full = [place for place, parts in waiting.items()
            if sum(len(part.rows) for part in parts) >= size]
    if full:
      return _joined(waiting, max(full, key=lambda place: place[1]), size)
    if new:
      return new.pop()
    places = [*waiting, *running.values()]
    for kind, t in waiting:  # Nothing can be added to one that no earlier one comes to.
      if not any(kind == other and earlier < t for other, earlier in places):
        return _joined(waiting, (kind, t), size)
    return None

  with concurrent.futures.ThreadPoolExecutor(threads) as executor:
    def start(part: Part):
      running[executor.submit(compute, part, is_alone(part.kind))] = part.kind, part.t

    while new or waiting or running:
      while len(running) < threads and (part := take()):
        start(part)
      for future in concurrent.futures.wait(running, return_when='FIRST_COMPLETED').done:
        del running[future]
        part = future.result()
        if part.rows and is_alone(part.kind):
          start(part)
        elif part.rows:
          waiting.setdefault((part.kind, part.t), []).append(_with_rows(part, list(part.rows)))
      del future, part  # The state of a batch that is over would stay in memory during the next.


def _joined(waiting: dict[tuple[Any, int], list[Part]], place: tuple[Any, int], size: int) -> Part:
  """Takes as many sentences from a place, a kind and a number of tokens, as a batch has rows."""
  parts = waiting.pop(place)
  taken = []
  free = size
  while parts and free:
    part = parts.pop()
    if len(part.rows) > free:
      parts.append(_with_rows(part, range(free, len(part.rows))))
      part = _with_rows(part, range(free))
    taken.append(part)
    free -= len(part.rows)
  if parts:
    waiting[place] = parts
  indices = [index for part in taken for index in part.rows.values()]
  if free:  # Copies of a sentence take no longer than the sentence.
    taken.append(_with_rows(taken[0], [0] * free))
  return Part(*place, dict(enumerate(indices)), jax.tree.map(
      lambda *leaves: np.concatenate(leaves) if leaves[0].ndim else leaves[0],
      *[part.state for part in taken]))


def _with_rows(part: Part, rows: Sequence[int]) -> Part:
  """Returns a copy of some rows of a batch, which become its first."""
  return part._replace(
      rows=dict(enumerate(part.rows[row] for row in rows)),
      state=jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(rows)] if np.ndim(leaf)
                         else np.asarray(leaf), part.state))
