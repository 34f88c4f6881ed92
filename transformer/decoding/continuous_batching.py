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
# A batch goes on as it is while at least this share of its rows is unfinished, since copies of them
# take about as long as a token.
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
Advanced = tuple[SearchBatch, Mapping[int, Any]]


def search_batches(
  batches: Sequence[SearchBatch],
  advance: Callable[[SearchBatch, bool], Advanced],
  size: int,
  threads: int,
) -> Iterator[Mapping[int, Any]]:
  """Searches for the translations of batches; yields the results of sentences as they are found.

  Args:
    batches: the batches, which have not begun; the last ones begin first.
    advance: adds tokens to a batch. It also gets whether to stop early, so that others may join
      the batch.
    size: number of rows of a batch.
    threads: number of batches that are computed side by side, and filled up with what is left of
      others. 0 is one batch after the other, each to its end, so that several processes run the
      same programs in the same order.

  After an error, or Ctrl-C, no other batch begins.
  """
  new = list(batches)
  if not threads:
    while new:
      batch = new.pop()
      while batch.rows:
        batch, results = advance(batch, False)
        yield results
    return
  waiting: dict[Place, list[SearchBatch]] = {}
  running: dict[concurrent.futures.Future, Place] = {}
  with concurrent.futures.ThreadPoolExecutor(threads) as executor:
    while new or waiting or running:
      while len(running) < threads and (
        batch := _take(new, waiting, running.values(), size)
      ):
        running[executor.submit(advance, batch, True)] = batch.bucket, batch.t
      for future in concurrent.futures.wait(
        running, return_when='FIRST_COMPLETED'
      ).done:
        del running[future]
        batch, results = future.result()
        yield results
        place = batch.bucket, batch.t
        # No other batch has, or will have, sentences of its bucket.
        alone = not new and all(
          batch.bucket != other for other, _ in [*waiting, *running.values()]
        )
        if batch.rows and (alone or len(batch.rows) >= _FULL * size):
          running[executor.submit(advance, batch, True)] = place
        elif batch.rows:
          state = _rows_of(batch.state, list(batch.rows))
          rest = batch._replace(rows=dict(enumerate(batch.rows.values())), state=state)
          waiting.setdefault(place, []).append(rest)
      # The state of a batch that is over would stay in memory during the next.
      del future, batch


def _take(
  new: list[SearchBatch],
  waiting: dict[Place, list[SearchBatch]],
  running: Collection[Place],
  size: int,
) -> SearchBatch | None:
  """Takes the next batch to compute: a full one, a new one, or one that nothing can join."""
  full = [
    place
    for place, batches in waiting.items()
    if sum(len(batch.rows) for batch in batches) >= size
  ]
  if full:
    return _joined(waiting, max(full, key=lambda place: place[1]), size)
  if new:
    return new.pop()
  places = [*waiting, *running]
  for bucket, t in waiting:
    if not any(bucket == other and earlier < t for other, earlier in places):
      return _joined(waiting, (bucket, t), size)
  return None


def _joined(
  waiting: dict[Place, list[SearchBatch]], place: Place, size: int
) -> SearchBatch:
  """Takes as many sentences from a place, a bucket and a number of tokens, as a batch has rows."""
  batches = waiting.pop(place)
  sentences = []
  for batch in batches:
    sentences += batch.rows.values()
  unused = max(size - len(sentences), 0)

  def joined(*leaves):
    if not leaves[0].ndim:
      return leaves[0]
    # Copies of a sentence take no longer than the sentence.
    return np.concatenate([*leaves, *[leaves[0][:1]] * unused])

  state = jax.tree.map(joined, *[batch.state for batch in batches])
  if sentences[size:]:
    rest = _rows_of(state, slice(size, None))
    waiting[place] = [SearchBatch(*place, dict(enumerate(sentences[size:])), rest)]
  taken = _rows_of(state, slice(size))
  return SearchBatch(*place, dict(enumerate(sentences[:size])), taken)


def _rows_of(state: Any, rows: Any) -> Any:
  """Returns some rows of a state, on the host."""
  return jax.tree.map(
    lambda leaf: np.asarray(leaf)[rows] if np.ndim(leaf) else np.asarray(leaf), state
  )
