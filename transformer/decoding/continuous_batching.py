"""Continuous batching: unfinished sentences join other batches in the middle of their search.

A batch is searched for a few tokens at a time. In between, the unfinished sentences of several
batches are merged into one batch.
"""

import concurrent.futures
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

# The bucket of a batch, and the number of tokens so far.
BatchKey = tuple[Any, int]
# A batch continues while at least this fraction of its rows is unfinished. Below, it waits to be
# merged with other batches.
_FULL = 0.75


class SearchBatch(NamedTuple):
  """A batch of sentences whose hypotheses have the same number of tokens.

  Attributes:
    bucket: the key that all sentences of a batch share.
    t: the number of tokens of each hypothesis.
    rows: the sentences by their rows in the arrays; other rows are unused.
    state: the search state, a pytree of arrays whose first axis is the row; scalars are for all
      rows. None before the search starts.
  """

  bucket: Any
  t: int
  rows: Mapping[int, Any]
  state: Any = None


# A batch without its finished sentences, and the results of the finished sentences.
SearchResult = tuple[SearchBatch, Mapping]


def search_batches(
  batches: Sequence[SearchBatch],
  search: Callable[[SearchBatch, bool], SearchResult],
  size: int,
  threads: int,
  refills: bool,
) -> Iterator[Mapping]:
  """Searches for the translations of batches; yields the results of sentences as they finish.

  Args:
    batches: the batches, not yet started; they start in reverse order.
    search: adds tokens to a batch. Its second argument is whether to pause early, so that other
      sentences can join the batch.
    size: number of rows of a batch.
    threads: number of batches that are computed concurrently.
    refills: whether to fill up batches with sentences of other batches. If False, each batch is
      searched to its end in this thread, so several processes run the same programs in order.

  After an error or Ctrl-C, no further batch starts.
  """
  new = list(batches)
  if not refills:
    while new:
      batch = new.pop()
      while batch.rows:
        batch, results = search(batch, False)
        yield results
    return
  waiting: dict[BatchKey, SearchBatch] = {}
  running: dict[concurrent.futures.Future, BatchKey] = {}
  with concurrent.futures.ThreadPoolExecutor(threads) as executor:
    while new or waiting or running:
      while len(running) < threads and (
        batch := _next_batch(new, waiting, running.values())
      ):
        running[executor.submit(search, batch, True)] = batch.bucket, batch.t
      for future in concurrent.futures.wait(
        running, return_when='FIRST_COMPLETED'
      ).done:
        del running[future]
        batch, results = future.result()
        yield results
        key = batch.bucket, batch.t
        if 0 < len(batch.rows) < _FULL * size and key in waiting:
          batch = _fill_up(batch, waiting, size)
        if len(batch.rows) >= _FULL * size:
          running[executor.submit(search, batch, True)] = key
        elif batch.rows:
          waiting[key] = batch
      # Otherwise the state of a finished batch stays in memory during the next batch.
      del future, batch


def _next_batch(
  new: list[SearchBatch],
  waiting: dict[BatchKey, SearchBatch],
  running: Collection[BatchKey],
) -> SearchBatch | None:
  """Returns the next batch to run: a new one, or one that no other can fill up; or None."""
  if new:
    return new.pop()
  keys = [*waiting, *running]
  for bucket, t in waiting:
    if not any(bucket == other and earlier < t for other, earlier in keys):
      return waiting.pop((bucket, t))
  return None


def _fill_up(
  batch: SearchBatch, waiting: dict[BatchKey, SearchBatch], size: int
) -> SearchBatch:
  """Moves waiting sentences of the same bucket and t into unused rows of a batch."""
  key = batch.bucket, batch.t
  other = waiting.pop(key)
  unused = [row for row in range(size) if row not in batch.rows]
  moves = dict(zip(unused, other.rows, strict=False))

  def fill(leaf, other_leaf):
    if not np.ndim(leaf):
      return leaf
    leaf = np.array(leaf)
    leaf[list(moves)] = np.asarray(other_leaf)[list(moves.values())]
    return leaf

  rows = dict(batch.rows)
  remaining = dict(other.rows)
  for row, origin in moves.items():
    rows[row] = remaining.pop(origin)
  if remaining:
    waiting[key] = other._replace(rows=remaining)
  state = jax.tree.map(fill, batch.state, other.state)
  return batch._replace(rows=rows, state=state)
