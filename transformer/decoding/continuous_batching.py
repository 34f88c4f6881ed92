"""Continuous batching: sentences that are still searched for join other batches.

A batch is searched for a few tokens at a time. In between, the unfinished sentences of several
batches become one batch.
"""

import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from transformer.ops.search import Hypotheses

# A batch goes on as it is while at least this share of its rows is unfinished, since copies of them
# take about as long as a token.
_FULL = 0.75


class SearchBatch(NamedTuple):
  """A batch of sentences whose searches have the same number of tokens.

  Attributes:
    bucket: what sentences that share a batch have in common.
    t: the number of tokens of each hypothesis.
    rows: the index of the sentence in each row of the arrays; other rows are unused.
    state: of their searches, a pytree whose arrays have the sentences for their first axis; scalars
      are the same for all sentences. None where they have not begun.
  """

  bucket: Any
  t: int
  rows: Mapping[int, int]
  state: Any = None


class Sentences(Protocol):
  """The sentences of a call, whose batches are searched."""

  def begin(self, batch: SearchBatch) -> Any:
    """Returns the state of a batch before the first token."""

  def advance(self, batch: SearchBatch, pauses: bool) -> tuple[Any, int, Any, Hypotheses]:
    """Adds tokens to a batch that has begun, as `SearchPrograms.advance` does."""

  def finish(self, hypotheses: Hypotheses, row: int, index: int):
    """Takes the result of a sentence, by its index, from a row of hypotheses."""


def search_batches(batches: Sequence[SearchBatch], sentences: Sentences, size: int, threads: int):
  """Searches for the translations of batches.

  Args:
    batches: the batches, which have not begun; the last ones begin first.
    sentences: what the batches consist of.
    size: number of rows of a batch.
    threads: number of batches that are computed side by side. 0 is one batch after the other, each
      to its end, so that several processes run the same programs in the same order.
  """
  if threads:
    _refill(batches, sentences, size, threads)
    return
  for batch in reversed(batches):
    while batch.rows:
      batch = _advanced(batch, sentences, pauses=False)


def _advanced(batch: SearchBatch, sentences: Sentences, pauses: bool) -> SearchBatch:
  """Returns the batch at its next stop, without the sentences whose search is over."""
  if batch.state is None:
    batch = batch._replace(state=sentences.begin(batch))
  state, t, done_B, hypotheses = sentences.advance(batch, pauses)
  # Reading an array whose computation lacked memory would end the process without a word.
  done_B = jax.device_get(jax.block_until_ready(done_B))
  if any(done_B[row] for row in batch.rows):
    hypotheses = jax.device_get(hypotheses)
  unfinished = {}
  for row, index in batch.rows.items():
    if done_B[row]:
      sentences.finish(hypotheses, row, index)
    else:
      unfinished[row] = index
  return SearchBatch(batch.bucket, t, unfinished, state)


def _compute(batch: SearchBatch, sentences: Sentences, size: int, alone: bool) -> SearchBatch:
  """Returns the batch at its end, or where others should fill it; none can if it is alone."""
  batch = _advanced(batch, sentences, pauses=True)
  while batch.rows and (alone or len(batch.rows) >= _FULL * size):
    batch = _advanced(batch, sentences, pauses=True)
  return batch


def _refill(new: Sequence[SearchBatch], sentences: Sentences, size: int, threads: int):
  """Computes batches side by side, and fills up what is left of them with what is left of others.

  After an error, or Ctrl-C, no other batch begins.
  """
  new = list(new)
  waiting = {}
  running = {}

  def is_alone(bucket) -> bool:
    """Returns whether no other batch has, or will have, sentences of a bucket."""
    return not new and all(bucket != other for other, _ in [*waiting, *running.values()])

  def take() -> SearchBatch | None:
    full = [
      place
      for place, batches in waiting.items()
      if sum(len(batch.rows) for batch in batches) >= size
    ]
    if full:
      return _joined(waiting, max(full, key=lambda place: place[1]), size)
    if new:
      return new.pop()
    places = [*waiting, *running.values()]
    for bucket, t in waiting:  # Nothing can be added to one that no earlier one comes to.
      if not any(bucket == other and earlier < t for other, earlier in places):
        return _joined(waiting, (bucket, t), size)
    return None

  with concurrent.futures.ThreadPoolExecutor(threads) as executor:

    def start(batch: SearchBatch):
      future = executor.submit(_compute, batch, sentences, size, is_alone(batch.bucket))
      running[future] = batch.bucket, batch.t

    while new or waiting or running:
      while len(running) < threads and (batch := take()):
        start(batch)
      for future in concurrent.futures.wait(running, return_when='FIRST_COMPLETED').done:
        del running[future]
        batch = future.result()
        if batch.rows and is_alone(batch.bucket):
          start(batch)
        elif batch.rows:
          place = batch.bucket, batch.t
          waiting.setdefault(place, []).append(_with_rows(batch, list(batch.rows)))
      del future, batch  # The state of a batch that is over would stay in memory during the next.


def _joined(
  waiting: dict[tuple[Any, int], list[SearchBatch]], place: tuple[Any, int], size: int
) -> SearchBatch:
  """Takes as many sentences from a place, a bucket and a number of tokens, as a batch has rows."""
  batches = waiting.pop(place)
  taken = []
  free = size
  while batches and free:
    batch = batches.pop()
    if len(batch.rows) > free:
      batches.append(_with_rows(batch, range(free, len(batch.rows))))
      batch = _with_rows(batch, range(free))
    taken.append(batch)
    free -= len(batch.rows)
  if batches:
    waiting[place] = batches
  indices = [index for batch in taken for index in batch.rows.values()]
  if free:  # Copies of a sentence take no longer than the sentence.
    taken.append(_with_rows(taken[0], [0] * free))
  return SearchBatch(
    *place,
    dict(enumerate(indices)),
    jax.tree.map(
      lambda *leaves: np.concatenate(leaves) if leaves[0].ndim else leaves[0],
      *[batch.state for batch in taken],
    ),
  )


def _with_rows(batch: SearchBatch, rows: Sequence[int]) -> SearchBatch:
  """Returns a copy of some rows of a batch, which become its first."""
  return batch._replace(
    rows=dict(enumerate(batch.rows[row] for row in rows)),
    state=jax.tree.map(
      lambda leaf: np.asarray(leaf)[np.asarray(rows)] if np.ndim(leaf) else np.asarray(leaf),
      batch.state,
    ),
  )
