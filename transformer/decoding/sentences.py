"""The sentences of a translator's call: their batches, what a search reads of them, its results."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.config import Decoding
from transformer.decoding.continuous_batching import SearchBatch, Searched
from transformer.decoding.model_search import Inputs, random_keys
from transformer.decoding.pairs import batched, padded, padded_length
from transformer.decoding.search_programs import SearchPrograms, encoded_length
from transformer.ops.search import Hypotheses


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
  unused = Sentence(0, (), 0, jax.tree.map(np.zeros_like, sentences[0].row))
  rows = [*sentences, *[unused] * (size - len(sentences))]
  numbers, sources, limits, forms = zip(*rows, strict=True)
  return Inputs(
    padded(sources, padded_length(len(sources[0]), longest), size),
    np.array(limits, np.int32),
    random_keys(decoding, numbers),
    jax.tree.map(lambda *leaves: np.stack(leaves), *forms),
  )


def nbest_of(
  hypotheses: Hypotheses, row: int, decoding: Decoding, target: Vocabulary
) -> list:
  """Returns pairs of a translation and its score, best first; a search gives no text twice."""
  scores = hypotheses.scores[row, : decoding.nbest].tolist()
  found: dict = {}
  for place, score in enumerate(scores):
    if hypotheses.lengths[row, place]:
      text = target.decode(hypotheses.tokens[row, place])
      found.setdefault(place if decoding.sample else text, (text, score))
  # If the log-probabilities are NaN, there may be no hypothesis.
  return list(found.values()) or [('', scores[0])]


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
        finished[sentence.number] = nbest_of(
          hypotheses, row, self.decoding, self.target
        )
      else:
        unfinished[row] = sentence
    return SearchBatch(batch.bucket, t, unfinished, state), finished
