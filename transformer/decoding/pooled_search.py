"""Searches for many sentences, whose batches are filled up as sentences are finished."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from transformer.decoding.pool import Part, Pool
from transformer.decoding.requirements import Demand
from transformer.decoding.search_parts import SearchParts
from transformer.ops.search import Hypotheses
from transformer.ops.steering import Automaton

# A batch goes on as it is while at least this share of its rows is unfinished, since copies of them
# take about as long as a token.
_FULL = 0.75


class Batch(NamedTuple):
  """Sentences that begin together: their padded length, their indices, and how.

  Attributes:
    length: the padded length of the sources.
    demand: the demand of all its sentences.
    chosen: the indices of the sentences.
  """

  length: int
  demand: Demand
  chosen: list[int]


class Work(NamedTuple):
  """Sentences to search translations for, and where these go.

  Attributes:
    batches: the batches that sentences begin in, none with phrases; the last ones begin first.
    arrays_of: a function (batch, room) -> source_BS, limits_B, prefix_BP, as `SearchParts.begin`
      takes them; P is `room`.
    automaton: forbids tokens in the batches that are steered; None forbids none.
    write: a function (hypotheses, row, index) that takes the result for a sentence.
  """

  batches: Sequence[Batch]
  arrays_of: Callable[[Batch, int], tuple[Any, Any, Any]]
  automaton: Automaton | None
  write: Callable[[Hypotheses, int, int], None]


def search_pooled(search: SearchParts, params, work: Work, size: int, threads: int):
  """Searches in parts. Between the parts, the unfinished sentences of several batches join.

  Args:
    search: the parts of the search.
    params: the parameters.
    work: the sentences.
    size: number of rows of a batch.
    threads: number of batches that are computed side by side.
  """
  params, tables = jax.device_put((params, list(work.automaton or ())), jax.local_devices()[0])

  def begin(batch: Batch):
    length = search.decoded_length(batch.length)
    source_BS, limits_B, prefix_BP = work.arrays_of(batch, search.room(length))
    if not batch.demand.steered:
      prefix_BP = prefix_BP[:, :0]
    sources, state = search.begin(params, source_BS, limits_B, prefix_BP,
                                  tables if batch.demand.steered else [])
    return Part((length, batch.demand.steered), 0, batch.chosen, sources, state)

  def compute(batch: Batch | Part) -> Part | None:
    part = begin(batch) if isinstance(batch, Batch) else batch
    (length, steered), t, chosen, sources, state = part
    rules, chosen = tables if steered else [], dict(enumerate(chosen))
    while t == part.t or len(chosen) >= _FULL * size or (chosen and pool.is_alone(part.kind)):
      state = search.with_room(params, sources, state, rules, t)
      t = search.next_stop(t, length)
      state, done_B, found = search.advance(params, sources, state, rules, t)
      # Reading an array whose computation lacked memory would end the process without a word.
      done_B, found = jax.device_get(jax.block_until_ready((done_B, found)))
      for row in [row for row in chosen if done_B[row]]:
        work.write(found, row, chosen.pop(row))
    left = Part(part.kind, t, [], sources, state)
    return left.with_rows(list(chosen), list(chosen.values())) if chosen else None

  pool = Pool(work.batches,
              lambda batch: (search.decoded_length(batch.length), batch.demand.steered), size)
  pool.run(compute, threads)
