"""The translator: sentences in, translations out, in the same order."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.text.characters import is_blank
from transformer.decoding.batch_search import BatchSearch
from transformer.decoding.config import DecodeConfig
from transformer.decoding.pool import Pool
from transformer.decoding.pooled_search import Batch, Work, search_pooled
from transformer.decoding.requirements import (
  NO_REQUIREMENTS,
  Demand,
  EncodedRequirements,
  Requirements,
  encode_requirements,
)
from transformer.decoding.search_parts import SearchParts
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.ops.phrases import Phrases
from transformer.ops.search import Hypotheses
from transformer.ops.steering import Steering
from transformer.training.mesh import gathered

_SHORTEST_BUCKET = 16
_KINDS = tuple(itertools.product((True, False), repeat=2))  # Steered; with phrases to contain.
_MOST_EXTENSIONS = 2**31 - 1  # A search indexes beams × vocabulary by int32.


class Translation(NamedTuple):
  """The translation of a sentence.

  Attributes:
    text: the translation, one line; empty for a blank source.
    score: log-probability divided by the length penalty, natural logarithm; not
      finite if the model's log-probabilities are not.
    cut: whether the source was longer than the run's `max_length` and lost its end.
    nbest: pairs of a translation and its score, best first; at most the number that
      was asked for.
  """

  text: str
  score: float
  cut: bool
  nbest: tuple[tuple[str, float], ...]


def padded_length(length: int, most: int) -> int:
  """Returns the padded length: a power of two, or `most`.

  With few padded lengths, few programs are compiled.

  Args:
    length: the number of tokens, the end token included.
    most: the largest padded length; longer sequences are cut.
  """
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), most)


def warn_of_cut(cut: Sequence[bool], max_length: int):
  """Warns how many sources were cut, if any; `cut` has a flag for each source."""
  if any(cut):
    logging.warning('%d of %d sources were longer than data.max_length=%d tokens and were cut',
                    sum(cut), len(cut), max_length)


class Translator:
  """Translates text with a model and a search, compiled once for each padded length.

  Sources are padded to a power of two, and batches to `decode.batch_size` sentences.
  So the shapes of a sentence's arrays depend only on the sentence, the config and the
  number of devices that share a batch. A sample also depends on the sentence's number,
  so that equal sentences get different samples.
  """

  def __init__(self, model: Transformer | Sequence[Transformer], vocabulary, config: DecodeConfig,
               max_length: int, seed: int = 0,
               devices: NamedSharding | int | None = None, nbest: int = 1):
    """Builds the search; it is compiled when a length first occurs.

    Args:
      model: the Transformer, or several, as `BatchSearch` takes them.
      vocabulary: its `source` encodes text, and its `target` decodes it.
      config: how to search or sample.
      max_length: the most tokens of a source, end token included; longer sources
        are cut.
      seed: the root of the random keys for samples, at least 0 and below 2³².
      devices: a sharding splits the sentences of each batch over several devices. A number is
        how many batches one device computes side by side; then a `Pool` fills up the batches of
        a search, and `keep_traced` keeps its programs. None is one batch after the other.
      nbest: the number of translations for each sentence, at most `beam_size`.

    Raises:
      UserError: `nbest` is not between 1 and `beam_size`, or `beam_size` times the
        vocabulary's size exceeds int32.
    """
    most = _MOST_EXTENSIONS // vocabulary.target.size
    if config.beam_size > most:
      raise UserError(f'decode.beam_size must be at most {most} with a vocabulary of '
                      f'{vocabulary.target.size} pieces; got {config.beam_size}')
    if not 1 <= nbest <= config.beam_size:
      raise UserError(f'an n-best list must have at least 1 and at most decode.beam_size='
                      f'{config.beam_size} translations; got {nbest}')
    self._nbest = nbest
    self._vocabulary = vocabulary
    self._config = config
    self._max_length = max_length
    self._rows = devices if isinstance(devices, NamedSharding) else None
    self._threads = devices if isinstance(devices, int) else 0
    search = BatchSearch(model, config, nbest)
    if self._rows is None:
      self._searches = dict.fromkeys(_KINDS, jax.jit(search))
    else:
      mesh = self._rows.mesh
      everywhere = NamedSharding(mesh, PartitionSpec())
      of_demands = {(steered, constrained): (
          Steering(self._rows, everywhere) if steered else None,
          Phrases(self._rows, everywhere) if constrained else None)
          for steered, constrained in _KINDS} | {(False, False): ()}
      # The parameters of a run in training may be split.
      self._searches = {kind: jax.jit(
          lambda params, *given: search(gathered(mesh, params), *given),
          in_shardings=(None, self._rows, self._rows, self._rows, *more),
          out_shardings=everywhere) for kind, more in of_demands.items()}
    about = repr((model, config, nbest, PAD_ID, BOS_ID, EOS_ID))
    self._parts = None if config.sample else SearchParts(search, about, max_length)
    self._compiled: dict[tuple[int, Demand], Callable] = {}
    self._root = jax.random.key(seed, impl='threefry2x32') if config.sample else None

  def __call__(self, params, sentences: Sequence[str], first: int = 0,
               requirements: Requirements = NO_REQUIREMENTS,
               progress: Callable[[int], Any] = lambda count: None) -> list[Translation]:
    """Translates sentences, and returns the translations in the same order.

    Args:
      params: the model's parameters; for several models, a sequence of their parameters.
      sentences: one line of text each; one without visible characters has an empty translation.
      first: the number of sentences translated before these; samples depend on it.
      requirements: what the translations must begin with, contain, and not hold.
      progress: called with numbers of sentences that are done, in any thread.

    Raises:
      UserError: a prefix or phrases leave no room within the limit of length, samples are to
        contain phrases, or there is one string in place of several.
    """
    encoded = self._vocabulary.source.encode_batch(sentences)
    limits = [min(len(ids) + 1, self._max_length) + self._config.max_extra_length
              for ids in encoded]
    required = encode_requirements(requirements, self._vocabulary.target, limits, first)
    if any(required.phrases) and self._config.sample:
      raise UserError('words that must appear need a search; leave out --sample, or set '
                      '--nosample')
    answers = [Translation('', 0.0, False, (('', 0.0),))] * len(sentences)
    asked = [i for i, sentence in enumerate(sentences) if not is_blank(sentence)]
    batches = list(self._batches(asked, encoded, required.demand))
    rows = self._config.batch_size
    progress(len(sentences) - len(asked))

    def sources_of(batch):
      source_BS = np.full((rows, batch.length), PAD_ID, np.int32)
      limits_B = np.zeros(rows, np.int32)
      for row, index in enumerate(batch.chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source_BS[row, :len(ids)], limits_B[row] = ids, limits[index]
      return source_BS, limits_B

    def write(best, row, index):
      nbest = self._nbest_of(best, row)
      # If the log-probabilities are NaN, there may be no best hypothesis.
      text, score = nbest[0] if nbest else ('', float(best.scores[row, 0]))
      answers[index] = Translation(text, score, len(encoded[index]) >= self._max_length, nbest)
      progress(1)

    def translate(batch):
      arrays = (*self._placed(*sources_of(batch), self._keys(batch.chosen, first)),
                *self._demands(required, batch))
      best = jax.device_get(self._search_of(batch)(params, *arrays))
      for row, index in enumerate(batch.chosen):
        write(best, row, index)

    if self._threads and self._parts:
      pooled = [batch for batch in batches if not batch.demand.shape]
      search_pooled(self._parts, params, Work(pooled, lambda batch, room: (
          *sources_of(batch), required.prefix_array(batch.chosen, rows, room)),
                                              required.automaton, write), rows, self._threads)
      batches = [batch for batch in batches if batch.demand.shape]
    if self._threads:
      Pool(batches, id, rows).run(translate, self._threads)
    else:
      for batch in batches:
        translate(batch)
    return answers

  def _search_of(self, batch: Batch) -> Callable[..., Hypotheses]:
    """Returns the search for a batch: one that is compiled ahead of time, if it fits."""
    steered, shape = batch.demand
    return self._compiled.get((batch.length, batch.demand),
                              self._searches[steered, shape is not None])

  def _demands(self, required: EncodedRequirements, batch: Batch
               ) -> tuple[Steering | None, Phrases | None]:
    """Returns the last arguments of a search, on its devices; none if there is no demand."""
    if not any(batch.demand):
      return ()
    steering, phrases = required.arrays(batch.demand, batch.chosen, self._config.batch_size,
                                        batch.length + self._config.max_extra_length)
    return (steering and Steering(*self._placed(steering[0]), *steering[1:]),
            phrases and Phrases(*self._placed(phrases[0]), *phrases[1:]))

  def _nbest_of(self, best: Hypotheses, row: int) -> tuple[tuple[str, float], ...]:
    """Returns the texts and the scores in a row of a search's result."""
    decode = self._vocabulary.target.decode
    return tuple((decode(best.tokens[row, place]), float(best.scores[row, place]))
                 for place in range(self._nbest) if best.lengths[row, place])

  def compile_longest(self, params, sentences: Sequence[str]):
    """Compiles the search for the longest sentence ahead of time.

    Args:
      params: parameters, or their shapes and shardings; the program takes no others.
      sentences: text.

    Returns:
      The padded length of the longest sentence, and the compiled program.
    """
    longest = max(map(len, self._vocabulary.source.encode_batch(sentences)))
    length, size = padded_length(longest + 1, self._max_length), self._config.batch_size
    program = self._searches[False, False].lower(
        params, *self._placed(np.full((size, length), PAD_ID, np.int32), np.zeros(size, np.int32),
                              self._keys([]))).compile()
    self._compiled[length, Demand(False, None)] = program
    return length, program

  def _placed(self, *arrays):
    """Puts arrays onto the devices of the search; every process has the whole arrays."""
    if self._rows is None or jax.process_count() == 1:
      return arrays
    return jax.tree.map(lambda array: jax.make_array_from_callback(
        array.shape, self._rows, lambda index: array[index]), arrays)

  def _keys(self, chosen, first=0):
    """Returns a random key for each row of a batch, derived from the sentence's number."""
    if self._root is None:
      return None
    numbers = np.zeros(self._config.batch_size, np.uint32)
    numbers[:len(chosen)] = np.add(chosen, first)
    return jax.vmap(jax.random.fold_in, (None, 0))(self._root, numbers)

  def _batches(self, asked, encoded, demand) -> Iterator[Batch]:
    """Yields batches of sentences of similar length, the shortest first.

    The program for another demand may round in another way. So only sentences of the same demand
    share a batch, and their translations do not depend on the others.
    """
    buckets: dict[tuple[int, Demand], list[int]] = {}
    for index in sorted(asked, key=lambda i: len(encoded[i])):
      length = padded_length(len(encoded[index]) + 1, self._max_length)
      buckets.setdefault((length, demand(index)), []).append(index)
    size = self._config.batch_size
    for (length, demand_of_all), members in buckets.items():
      for first in range(0, len(members), size):
        yield Batch(length, demand_of_all, members[first:first + size])
