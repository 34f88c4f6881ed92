"""The sentences of a translator's call: their batches, the inputs of a search, and its results."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.batching import batched, padded, padded_length
from transformer.decoding.config import DecodeOptions
from transformer.decoding.continuous_batching import SearchBatch, SearchResult
from transformer.decoding.decoder_search import SearchInputs, random_keys
from transformer.decoding.search_programs import SearchPrograms, encoded_length
from transformer.ops.search import Hypotheses


class Sentence(NamedTuple):
  """A sentence to translate."""

  number: int  # index among all sentences; a sample depends on it
  source: Sequence[int]  # its ids, EOS last
  limit: int  # maximum number of tokens of its translation
  constraint_arrays: Any = None  # None if unconstrained


class Bucket(NamedTuple):
  """The key of sentences that can share a batch, because their arrays have the same shapes."""

  length: int  # of an encoded source
  constraint_shapes: Any  # the structure and the shapes of the constraint's arrays


def batch_sentences(
  sentences: Iterable[Sentence], size: int, max_source_length: int
) -> list[SearchBatch]:
  """Returns batches of sentences of similar length, the shortest first.

  Programs for different shapes may round differently. So only sentences with arrays of the same
  shapes share a batch, and a translation does not depend on the other sentences.
  """
  keyed = []
  for sentence in sorted(sentences, key=lambda sentence: len(sentence.source)):
    leaves, tree = jax.tree.flatten(sentence.constraint_arrays)
    constraint_shapes = tree, *map(np.shape, leaves)
    keyed.append(
      (
        (padded_length(len(sentence.source), max_source_length), constraint_shapes),
        sentence,
      )
    )
  batches = []
  for (length, constraint_shapes), group in batched(keyed, size):
    bucket = Bucket(encoded_length(length, max_source_length), constraint_shapes)
    batches.append(SearchBatch(bucket, 0, dict(enumerate(group))))
  return batches


def search_inputs(
  sentences: Sequence[Sentence], decoding: DecodeOptions, max_source_length: int
) -> SearchInputs:
  """Returns the inputs of a search for the sentences of a new batch."""
  size = decoding.batch_size
  unused = Sentence(
    0, (), 0, jax.tree.map(np.zeros_like, sentences[0].constraint_arrays)
  )
  rows = [*sentences, *[unused] * (size - len(sentences))]
  indices, sources, limits, arrays = zip(*rows, strict=True)
  return SearchInputs(
    padded(sources, padded_length(len(sources[0]), max_source_length), size),
    np.array(limits, np.int32),
    random_keys(decoding, indices),
    jax.tree.map(lambda *leaves: np.stack(leaves), *arrays),
  )


def nbest_list(
  hypotheses: Hypotheses, row: int, decoding: DecodeOptions, target: Vocabulary
) -> list:
  """Returns pairs (text, score), best first; the texts of a search are distinct."""
  scores = hypotheses.scores[row, : decoding.nbest].tolist()
  results = {}
  for place, score in enumerate(scores):
    if hypotheses.lengths[row, place]:
      text = target.decode(hypotheses.tokens[row, place])
      results.setdefault(place if decoding.sample else text, (text, score))
  # If the log-probabilities are NaN, there may be no hypothesis.
  return list(results.values()) or [('', scores[0])]


@dataclasses.dataclass(frozen=True)
class SentenceSearch:
  """The search for the translations of batches.

  Attributes:
    programs: the programs of the search.
    params: the parameters of each model, on the devices.
    tables: the constraint's arrays that all sentences share, on the devices.
    decoding: how to search or sample.
    target: the vocabulary of the translations.
  """

  programs: SearchPrograms
  params: list
  tables: Any
  decoding: DecodeOptions
  target: Vocabulary

  def search(self, batch: SearchBatch, pause_for_refill: bool) -> SearchResult:
    """Adds tokens to a batch; returns its unfinished part, and (text, score) lists by number."""
    state = batch.state
    if state is None:
      inputs = search_inputs(
        list(batch.rows.values()), self.decoding, self.programs.max_source_length
      )
      state = self.programs.begin(self.params, self.tables, inputs)
    state, t, done_B, hypotheses = self.programs.advance(
      self.params, self.tables, state, batch.bucket.length, batch.t, pause_for_refill
    )
    # Reading an array whose computation ran out of memory would kill the process silently.
    done_B = jax.device_get(jax.block_until_ready(done_B))
    if any(done_B[row] for row in batch.rows):
      hypotheses = jax.device_get(hypotheses)
    unfinished = {}
    finished = {}
    for row, sentence in batch.rows.items():
      if done_B[row]:
        finished[sentence.number] = nbest_list(
          hypotheses, row, self.decoding, self.target
        )
      else:
        unfinished[row] = sentence
    return SearchBatch(batch.bucket, t, unfinished, state), finished
