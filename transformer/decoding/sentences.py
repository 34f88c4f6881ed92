"""The sentences of a translator's call: their batches, what a search reads of them, its results."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import Decoding
from transformer.decoding.constraint import stacked
from transformer.decoding.continuous_batching import SearchBatch, Searched
from transformer.decoding.model_search import Inputs, random_keys
from transformer.decoding.pairs import batched, padded, padded_length
from transformer.decoding.search_programs import SearchPrograms, encoded_length
from transformer.ops.search import Hypotheses


def distinct(nbest: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
  """Returns the texts of a list, best first, without those that occurred before in other pieces."""
  scores: dict[str, float] = {}
  for text, score in nbest:
    scores.setdefault(text, score)
  return tuple(scores.items())


class Sentence(NamedTuple):
  """A sentence to translate."""

  number: int  # among all sentences; a sample depends on it
  source: Sequence[int]  # its ids, the end token last
  limit: int  # maximum number of tokens of its translation
  row: Any = None  # the constraint's arrays; None is a free sentence


class Bucket(NamedTuple):
  """What sentences have in common whose arrays have the same shapes, so that they share batches."""

  length: int  # of an encoded source
  form: Any  # the structure and the shapes of the constraint's arrays


def batches_of(
  sentences: Iterable[Sentence], size: int, longest: int
) -> list[SearchBatch]:
  """Returns batches of sentences of similar length, the shortest first.

  A program for arrays of other shapes may round in another way. So only sentences with arrays of
  the same shapes share a batch, and their translations do not depend on the others.
  """
  keyed = []
  for sentence in sorted(sentences, key=lambda sentence: len(sentence.source)):
    leaves, tree = jax.tree.flatten(sentence.row)
    form = tree, *map(np.shape, leaves)
    keyed.append(((padded_length(len(sentence.source), longest), form), sentence))
  batches = []
  for (length, form), several in batched(keyed, size):
    bucket = Bucket(encoded_length(length, longest), form)
    batches.append(SearchBatch(bucket, 0, dict(enumerate(several))))
  return batches


def inputs_of(
  sentences: Sequence[Sentence], decoding: Decoding, longest: int
) -> Inputs:
  """Returns what a search reads of the sentences of a new batch."""
  size = decoding.batch_size
  numbers, sources, limits, rows = zip(*sentences, strict=True)
  length = padded_length(len(sources[0]), longest)
  return Inputs(
    padded(sources, length, size),
    stacked([np.int32(limit) for limit in limits], size),
    random_keys(decoding, numbers),
    stacked(rows, size),
  )


@dataclasses.dataclass(frozen=True)
class SentenceSearch:
  """The search for the translations of batches.

  Attributes:
    programs: the programs of the search.
    params: of each model, on the devices, as are the constraint's `tables`.
    decoding: how to search or draw.
    target: the vocabulary of the translations.
    longest: the most tokens of a source, end token included.
  """

  programs: SearchPrograms
  params: list
  tables: Any
  decoding: Decoding
  target: Vocabulary
  longest: int

  def search(self, batch: SearchBatch, pauses: bool) -> Searched:
    """Adds tokens to a batch; returns its rest, and lists of (text, score) by sentence number."""
    state = batch.state
    if state is None:
      inputs = inputs_of(list(batch.rows.values()), self.decoding, self.longest)
      state = self.programs.begin(self.params, self.tables, inputs)
    state, t, done_B, hypotheses = self.programs.advance(
      self.params, self.tables, state, batch.bucket.length, batch.t, pauses
    )
    # Reading an array whose computation lacked memory would end the process without a word.
    done_B = jax.device_get(jax.block_until_ready(done_B))
    if any(done_B[row] for row in batch.rows):
      hypotheses = jax.device_get(hypotheses)
    unfinished = {}
    finished = {}
    for row, sentence in batch.rows.items():
      if done_B[row]:
        finished[sentence.number] = self._texts(hypotheses, row)
      else:
        unfinished[row] = sentence
    return SearchBatch(batch.bucket, t, unfinished, state), finished

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
