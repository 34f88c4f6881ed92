"""The translator: sentences in, translations out, in the same order."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.inference.batch_search import BatchSearch
from transformer.inference.config import DecodeConfig
from transformer.inference.pool import Pool
from transformer.inference.pooled_search import Batch, Work, search_pooled
from transformer.inference.search_parts import SearchParts
from transformer.model.transformer import Transformer
from transformer.ops.search import Hypotheses
from transformer.ops.steering import Automaton, Steering

_SHORTEST_BUCKET = 16
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


class Requirements(NamedTuple):
  """What translations must begin with, and what they must not hold.

  Attributes:
    prefixes: the beginning of each sentence's translation, '' if it is free; or nothing.
    automaton: from `avoidance.avoid`; None forbids nothing.
  """

  prefixes: Sequence[str] = ()
  automaton: Automaton | None = None


NO_REQUIREMENTS = Requirements()


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
      self._search = self._steered_search = jax.jit(search)
    else:
      everywhere = NamedSharding(self._rows.mesh, PartitionSpec())
      shardings = (None, self._rows, self._rows, self._rows)
      self._search = jax.jit(search, in_shardings=shardings, out_shardings=everywhere)
      self._steered_search = jax.jit(
          search, in_shardings=(*shardings, Steering(self._rows, everywhere)),
          out_shardings=everywhere)
    about = repr((model, config, nbest, PAD_ID, BOS_ID, EOS_ID))
    self._parts = None if config.sample else SearchParts(search, about, max_length)
    self._compiled: dict[tuple[int, bool], Callable] = {}
    self._root = jax.random.key(seed, impl='threefry2x32') if config.sample else None

  def __call__(self, params, sentences: Sequence[str], first: int = 0,
               requirements: Requirements = NO_REQUIREMENTS) -> list[Translation]:
    """Translates sentences, and returns the translations in the same order.

    Args:
      params: the model's parameters; for several models, a sequence of their parameters.
      sentences: one line of text each.
      first: the number of sentences translated before these; samples depend on it.
      requirements: what the translations must begin with, and what they must not hold.

    Raises:
      UserError: a prefix leaves no room for more within the limit of length.
    """
    encoded = self._vocabulary.source.encode_batch(list(sentences))
    prefixes = self._vocabulary.target.encode_batch(
        list(requirements.prefixes)) or [[]] * len(encoded)
    limits = [min(len(ids) + 1, self._max_length) + self._config.max_extra_length
              for ids in encoded]
    for number, (prefix, limit) in enumerate(zip(prefixes, limits, strict=True), first + 1):
      if len(prefix) >= limit:
        raise UserError(f'the beginning of translation {number} must have fewer tokens than its '
                        f'limit, {limit}; got {len(prefix)}; shorten it, or raise '
                        f'decode.max_extra_length')
    answers = [Translation('', 0.0, False, (('', 0.0),))] * len(sentences)
    asked = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    automaton = requirements.automaton
    batches = list(self._batches(
        asked, encoded, lambda i: automaton is not None or bool(prefixes[i])))

    def arrays_of(batch, room):
      source, prefix = (np.full((self._config.batch_size, length), PAD_ID, np.int32)
                        for length in (batch.length, room))
      limits_B = np.zeros(len(source), np.int32)
      for row, index in enumerate(batch.chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source[row, :len(ids)], limits_B[row] = ids, limits[index]
        prefix[row, :len(prefixes[index])] = prefixes[index]
      return source, limits_B, prefix

    def write(best, row, index):
      nbest = self._nbest_of(best, row)
      # If the log-probabilities are NaN, there may be no best hypothesis.
      text, score = nbest[0] if nbest else ('', float(best.scores[row, 0]))
      answers[index] = Translation(text, score, len(encoded[index]) >= self._max_length, nbest)

    def translate(batch):
      source, limits_B, prefix = arrays_of(batch, batch.length + self._config.max_extra_length)
      arrays = self._placed(source, limits_B, self._keys(batch.chosen, first))
      if batch.steered:
        arrays = *arrays, Steering(*self._placed(prefix), automaton)
      search = self._steered_search if batch.steered else self._search
      best = jax.device_get(
          self._compiled.get((batch.length, batch.steered), search)(params, *arrays))
      for row, index in enumerate(batch.chosen):
        write(best, row, index)

    if self._threads and self._parts:
      search_pooled(self._parts, params, Work(batches, arrays_of, automaton, write),
                    self._config.batch_size, self._threads)
    elif self._threads:
      Pool(batches, id, self._config.batch_size).run(translate, self._threads)
    else:
      for batch in batches:
        translate(batch)
    return answers

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
    longest = max(map(len, self._vocabulary.source.encode_batch(list(sentences))))
    length, size = padded_length(longest + 1, self._max_length), self._config.batch_size
    self._compiled[length, False] = self._search.lower(
        params, *self._placed(np.full((size, length), PAD_ID, np.int32), np.zeros(size, np.int32),
                              self._keys([]))).compile()
    return length, self._compiled[length, False]

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

  def _batches(self, asked, encoded, is_steered) -> Iterator[Batch]:
    """Yields batches of sentences of similar length, the shortest first.

    A program that steers may round in another way. So the sentences that it is not for do not
    share its batches, and their translations do not depend on the others.
    """
    buckets: dict[tuple[int, bool], list[int]] = {}
    for index in sorted(asked, key=lambda i: len(encoded[i])):
      length = padded_length(len(encoded[index]) + 1, self._max_length)
      buckets.setdefault((length, is_steered(index)), []).append(index)
    size = self._config.batch_size
    for (length, steered), members in buckets.items():
      for first in range(0, len(members), size):
        yield Batch(length, members[first:first + size], steered)
