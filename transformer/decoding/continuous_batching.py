"""Continuous batching: sentences that are still searched for join other batches.

A batch is searched for a few tokens at a time. In between, the unfinished sentences of several
batches become one batch.
"""

import concurrent.futures
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

# The bucket of sentences, and the number of their tokens so far.
Place = tuple[Any, int]
# A batch goes on while at least this share of its rows is unfinished; another one waits for others.
_FULL = 0.75


class SearchBatch(NamedTuple):
  """A batch of sentences whose searches have the same number of tokens.

  Attributes:
    bucket: what sentences that share a batch have in common.
    t: the number of tokens of each hypothesis.
    rows: the sentence in each row of the arrays; other rows are unused.
    state: of their searches, a pytree whose arrays have the sentences for their first axis; scalars
      are the same for all sentences. None where they have not begun.
  """

  bucket: Any
  t: int
  rows: Mapping[int, Any]
  state: Any = None


# The rest of a batch, without the sentences whose search is over; and the results of those.
Searched = tuple[SearchBatch, Mapping]


def search_batches(
  batches: Sequence[SearchBatch],
  search: Callable[[SearchBatch, bool], Searched],
  size: int,
  threads: int,
  refills: bool,
) -> Iterator[Mapping]:
  """Searches for the translations of batches; yields the results of sentences as they are found.

  Args:
    batches: the batches, which have not begun; the last ones begin first.
    search: adds tokens to a batch. It also gets `refills`, to stop early, so that others may join
      the batch.
    size: number of rows of a batch.
    threads: number of batches that are computed side by side.
    refills: whether batches are filled up with the rest of others. Without it, each is searched to
      its end in this thread, so that several processes run the same programs in the same order.

  After an error, or Ctrl-C, no other batch begins.
  """
  new = list(batches)
  if not refills:
    while new:
      batch = new.pop()
      while batch.rows:
        batch, results = search(batch, False)
        yield results
    return
  waiting: dict[Place, SearchBatch] = {}
  running: dict[concurrent.futures.Future, Place] = {}
  with concurrent.futures.ThreadPoolExecutor(threads) as executor:
    while new or waiting or running:
      while len(running) < threads and (batch := _take(new, waiting, running.values())):
        running[executor.submit(search, batch, True)] = batch.bucket, batch.t
      for future in concurrent.futures.wait(
        running, return_when='FIRST_COMPLETED'
      ).done:
        del running[future]
        batch, results = future.result()
        yield results
        place = batch.bucket, batch.t
        if 0 < len(batch.rows) < _FULL * size and place in waiting:
          batch = _filled(batch, waiting, size)
        if len(batch.rows) >= _FULL * size:
          running[executor.submit(search, batch, True)] = place
        elif batch.rows:
          waiting[place] = batch
      # The state of a batch that is over would stay in memory during the next.
      del future, batch


def _take(
  new: list[SearchBatch],
  waiting: dict[Place, SearchBatch],
  running: Collection[Place],
) -> SearchBatch | None:
  """Takes the next batch to compute: a new one, or one that no other can fill up."""
  if new:
    return new.pop()
  places = [*waiting, *running]
  for bucket, t in waiting:
    if not any(bucket == other and earlier < t for other, earlier in places):
      return waiting.pop((bucket, t))
  return None


def _filled(
  batch: SearchBatch, waiting: dict[Place, SearchBatch], size: int
) -> SearchBatch:
  """Moves sentences that wait at a batch's place to unused rows of the batch."""
  place = batch.bucket, batch.t
  other = waiting.pop(place)
  unused = [row for row in range(size) if row not in batch.rows]
  moves = dict(zip(unused, other.rows, strict=False))

  def fill(leaf, more):
    if not np.ndim(leaf):
      return leaf
    leaf = np.array(leaf)
    leaf[list(moves)] = np.asarray(more)[list(moves.values())]
    return leaf

  rows = dict(batch.rows)
  rest = dict(other.rows)
  for row, origin in moves.items():
    rows[row] = rest.pop(origin)
  if rest:
    waiting[place] = other._replace(rows=rest)
  state = jax.tree.map(fill, batch.state, other.state)
  return batch._replace(rows=rows, state=state)
