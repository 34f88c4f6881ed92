"""The sentences of a call of the translator: their batches, inputs and results."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm import tqdm

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import Decoding
from transformer.decoding.constraint import stacked
from transformer.decoding.continuous_batching import SearchBatch
from transformer.decoding.model_search import random_keys
from transformer.decoding.pairs import padded, padded_length
from transformer.decoding.search_programs import SearchPrograms
from transformer.ops.search import Hypotheses


def distinct(nbest: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
  """Returns the texts of a list, best first, without those that occurred before in other pieces."""
  scores: dict[str, float] = {}
  for text, score in nbest:
    scores.setdefault(text, score)
  return tuple(scores.items())


class Bucket(NamedTuple):
  """What sentences have in common whose arrays have the same shapes, so that they share batches."""

  programs: SearchPrograms
  length: int  # of an encoded source
  form: Any  # the structure and the shapes of the constraint's arrays; None is a free sentence


@dataclasses.dataclass(frozen=True)
class Sentences:
  """The sentences of a call of a translator.

  Attributes:
    max_length: the most tokens of a source, end token included.
    target: the vocabulary of the translations.
    params: of each model, on the devices, as are the constraint's `tables`.
    free, obeying: the programs for sentences without and with arrays of the constraint.
    sources: the ids of each source.
    limits: the largest number of tokens of each translation.
    rows: the constraint's arrays of each sentence.
    first: the number of sentences before these.
    nbest: is filled with the list of each sentence's translations and scores, best first.
    bar: shows how many sentences are done.
  """

  decoding: Decoding
  max_length: int
  target: Vocabulary
  params: list
  tables: Any
  free: SearchPrograms
  obeying: SearchPrograms
  sources: Sequence[Sequence[int]]
  limits: Sequence[int]
  rows: Sequence[Any]
  first: int
  nbest: dict[int, Sequence[tuple[str, float]]]
  bar: tqdm

  def batches(self, chosen: Sequence[int]) -> list[SearchBatch]:
    """Returns batches of sentences of similar length, the shortest first.

    A program for arrays of other shapes may round in another way. So only sentences with arrays
    of the same shapes share a batch, and their translations do not depend on the others.
    """
    buckets: dict[tuple, list[int]] = {}
    for index in sorted(chosen, key=lambda index: len(self.sources[index])):
      length = padded_length(len(self.sources[index]), self.max_length)
      buckets.setdefault((length, self._bucket(length, self.rows[index])), []).append(
        index
      )
    size = self.decoding.batch_size
    batches = []
    for (_, bucket), indices in buckets.items():
      for start in range(0, len(indices), size):
        batches.append(
          SearchBatch(bucket, 0, dict(enumerate(indices[start : start + size])))
        )
    return batches

  def _bucket(self, length: int, row: Any) -> Bucket:
    if row is None:
      return Bucket(self.free, self.free.decoded_length(length), None)
    leaves, tree = jax.tree.flatten(row)
    form = tree, *map(np.shape, leaves)
    return Bucket(self.obeying, self.obeying.decoded_length(length), form)

  def advance(self, batch: SearchBatch, pauses: bool) -> SearchBatch:
    """Adds tokens to a batch, keeps finished translations, and returns the rest of the batch."""
    programs = batch.bucket.programs
    tables = () if batch.bucket.form is None else self.tables
    state = batch.state
    if state is None:
      state = programs.begin(
        self.params, tables, *self._inputs(list(batch.rows.values()))
      )
    state, t, done_B, hypotheses = programs.advance(
      self.params, tables, state, batch.t, pauses
    )
    # Reading an array whose computation lacked memory would end the process without a word.
    done_B = jax.device_get(jax.block_until_ready(done_B))
    if any(done_B[row] for row in batch.rows):
      hypotheses = jax.device_get(hypotheses)
    unfinished = {}
    for row, index in batch.rows.items():
      if done_B[row]:
        self.nbest[index] = self._texts(hypotheses, row)
        self.bar.update()
      else:
        unfinished[row] = index
    return SearchBatch(batch.bucket, t, unfinished, state)

  def _inputs(self, indices: Sequence[int]) -> tuple[np.ndarray, tuple]:
    """Returns the padded sources of a new batch, and what a search takes for each."""
    size = self.decoding.batch_size
    sources = [self.sources[index] for index in indices]
    length = padded_length(len(sources[0]), self.max_length)
    limits_B = stacked([np.int32(self.limits[index]) for index in indices], size)
    keys_B = random_keys(self.decoding, self.decoding.seed, np.add(indices, self.first))
    rows = stacked([self.rows[index] for index in indices], size)
    return padded(sources, length, size), (limits_B, keys_B, rows)

  def _texts(self, hypotheses: Hypotheses, row: int) -> Sequence[tuple[str, float]]:
    """Returns the translations of a sentence with their scores, best first."""
    decode = self.target.decode
    scores = hypotheses.scores[row, : self.decoding.nbest].tolist()
    texts = [
      (decode(hypotheses.tokens[row, place]), score)
      for place, score in enumerate(scores)
      if hypotheses.lengths[row, place]
    ]
    # If the log-probabilities are NaN, there may be no hypothesis.
    return (texts if self.decoding.sample else distinct(texts)) or [('', scores[0])]
