"""Searches for many sentences, whose batches are filled up as sentences are finished."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from transformer.decoding.pool import Part, Pool
from transformer.decoding.search_parts import SearchParts
from transformer.ops.search import Hypotheses

# A batch goes on as it is while at least this share of its rows is unfinished, since copies of them
# take about as long as a token.
_FULL = 0.75


class Batch(NamedTuple):
  """Sentences that begin together.

  Attributes:
    length: the padded length of the sources.
    form: what their searches have in common, besides; None is free of a constraint.
    chosen: the indices of the sentences.
  """

  length: int
  form: Any
  chosen: list[int]


class Work(NamedTuple):
  """Sentences to search translations for, and where these go.

  Attributes:
    batches: the batches that sentences begin in; the last ones begin first.
    arrays_of: a function batch -> (source_BS, given), as `SearchParts.begin` takes them.
    searches: the parts of a free search, and of one with a constraint.
    tables: the other arrays of the constraint.
    write: a function (hypotheses, row, index) that takes the result for a sentence.
  """

  batches: Sequence[Batch]
  arrays_of: Callable[[Batch], tuple[Any, Any]]
  searches: tuple[SearchParts, SearchParts]
  tables: Any
  write: Callable[[Hypotheses, int, int], None]


def search_pooled(params, work: Work, size: int, threads: int):
  """Searches in parts. Between the parts, the unfinished sentences of several batches join.

  Args:
    params: the parameters.
    work: the sentences.
    size: number of rows of a batch.
    threads: number of batches that are computed side by side.
  """
  params, tables = jax.device_put((params, work.tables), jax.local_devices()[0])

  def kind_of(batch: Batch):
    return work.searches[0].decoded_length(batch.length), batch.form

  def search_of(form):
    return (work.searches[0], ()) if form is None else (work.searches[1], tables)

  def begin(batch: Batch):
    search, tables = search_of(batch.form)
    source_BS, given = work.arrays_of(batch)
    return Part(kind_of(batch), 0, batch.chosen, *search.begin(params, source_BS, given, tables))

  def compute(batch: Batch | Part) -> Part | None:
    part = begin(batch) if isinstance(batch, Batch) else batch
    (length, form), t, chosen, sources, state = part
    (search, tables), chosen = search_of(form), dict(enumerate(chosen))
    while t == part.t or len(chosen) >= _FULL * size or (chosen and pool.is_alone(part.kind)):
      state = search.with_room(params, sources, state, tables, t)
      t = search.next_stop(t, length)
      state, done_B, found = search.advance(params, sources, state, tables, t)
      # Reading an array whose computation lacked memory would end the process without a word.
      done_B, found = jax.device_get(jax.block_until_ready((done_B, found)))
      for row in [row for row in chosen if done_B[row]]:
        work.write(found, row, chosen.pop(row))
    left = Part(part.kind, t, [], sources, state)
    return left.with_rows(list(chosen), list(chosen.values())) if chosen else None

  pool = Pool(work.batches, kind_of, size)
  pool.run(compute, threads)
