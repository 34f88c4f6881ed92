"""The translator: sentences in, translations out, in the same order."""

import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.inference.config import DecodeConfig
from transformer.inference.sharing import share
from transformer.model.transformer import Transformer
from transformer.ops.sampling import SamplingOptions, sample_search
from transformer.ops.search import Cache, Hypotheses, SearchOptions, beam_search, greedy_search
from transformer.system.traced_programs import keep_traced

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


def make_search(model: Transformer | Sequence[Transformer],
                config: DecodeConfig, nbest: int = 1) -> Callable[..., Hypotheses]:
  """Builds the search for a batch of encoded sources, a pure function on arrays.

  Args:
    model: the Transformer; or several, whose probabilities of the next token are
      averaged. Then `params` is a sequence too.
    config: beam size, length penalty and limit of length; or how to sample.
    nbest: the number of hypotheses that a beam search returns.

  Returns:
    A function (params, source_BS, limits_B, keys_B) -> `Hypotheses`. The encoder and the
    projections of its output for cross-attention are computed once for each sentence.
      source_BS: padded source ids with their end tokens.
      limits_B: the largest number of tokens for each translation.
      keys_B: a random key for each sentence; only sampling needs them.
  """

  models = [model] if isinstance(model, Transformer) else model

  def search(params, source_BS, limits_B, keys_B=None) -> Hypotheses:
    all_params = [params] if isinstance(model, Transformer) else params
    applies = [functools.partial(each.apply, {'params': own})
               for each, own in zip(models, all_params, strict=True)]
    batch, source_length = source_BS.shape
    max_length = source_length + config.max_extra_length
    real_BS = source_BS != PAD_ID
    positions_BS = jnp.broadcast_to(jnp.arange(source_length, dtype=jnp.int32), source_BS.shape)
    memories = []
    for apply in applies:
      memory_BSD = apply(source_BS, real_BS.astype(jnp.int32), positions_BS, method='encode')
      memories.append(apply(memory_BSD, method='cache_memory'))

    def step(tokens_BW, cache):
      index, caches = cache.common
      log_probs, grown = [], []
      for apply, layers, memory in zip(applies, caches, memories, strict=True):
        logits_BWN, lineage, layers = apply(tokens_BW, index, cache.own, layers, memory, real_BS,
                                            method='step')
        log_probs.append(jax.nn.log_softmax(logits_BWN))
        grown.append(layers)
      return mean_probability(log_probs), Cache(lineage, (index + 1, tuple(grown)))

    def grow(cache, length):
      (index, caches), more = cache.common, length - cache.own.shape[-1]
      return Cache(jnp.pad(cache.own, ((0, 0), (0, 0), (0, more))),
                   (index, tuple(tuple(layer.padded_to(length * beams) for layer in layers)
                                 for layers in caches)))

    beams = config.beam_size
    cache = Cache(jnp.zeros((batch, beams, 0), jnp.int32),
                  (jnp.int32(0), tuple(apply((batch,), beams, 0, method='empty_cache')
                                       for apply in applies)))
    options = SearchOptions(max_length, BOS_ID, EOS_ID, config.alpha, grow)
    if config.sample:
      return sample_search(
          step, cache, limits_B, keys_B, options, samples=beams,
          sampling=SamplingOptions(config.temperature, config.top_k, config.top_p))
    if beams == 1:
      return greedy_search(step, cache, limits_B, options)
    return beam_search(step, cache, limits_B, options, beam_size=beams, nbest=nbest)

  return search


def padded_length(length: int, most: int) -> int:
  """Returns the padded length: a power of two, or `most`.

  With few padded lengths, few programs are compiled.

  Args:
    length: the number of tokens, the end token included.
    most: the largest padded length; longer sequences are cut.
  """
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), most)


def mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """Returns the logarithm of the mean of several distributions, given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))


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
               devices: NamedSharding | Sequence[jax.Device] | None = None, nbest: int = 1):
    """Builds the search; it is compiled when a length first occurs.

    Args:
      model: the Transformer, or several, as `make_search` takes them.
      vocabulary: encodes and decodes text.
      config: how to search or sample.
      max_length: the most tokens of a source, end token included; longer sources
        are cut.
      seed: the root of the random keys for samples, at least 0 and below 2³².
      devices: a sharding splits the sentences of each batch over several devices. In a
        sequence, each device takes whole batches, and `keep_traced` keeps the searches.
        None is one device.
      nbest: the number of translations for each sentence, at most `beam_size`.

    Raises:
      UserError: `nbest` is not between 1 and `beam_size`, or `beam_size` times the
        vocabulary's size exceeds int32.
    """
    most = _MOST_EXTENSIONS // vocabulary.size
    if config.beam_size > most:
      raise UserError(f'decode.beam_size must be at most {most} with a vocabulary of '
                      f'{vocabulary.size} pieces; got {config.beam_size}')
    if not 1 <= nbest <= config.beam_size:
      raise UserError(f'an n-best list must have at least 1 and at most decode.beam_size='
                      f'{config.beam_size} translations; got {nbest}')
    self._nbest = nbest
    self._vocabulary = vocabulary
    self._config = config
    self._max_length = max_length
    self._rows = devices if isinstance(devices, NamedSharding) else None
    self._devices = () if self._rows or devices is None else tuple(devices)
    search = make_search(model, config, nbest)
    if self._rows is None:
      self._search = jax.jit(search)
    else:
      everywhere = NamedSharding(self._rows.mesh, PartitionSpec())
      self._search = jax.jit(search, in_shardings=(None, self._rows, self._rows, self._rows),
                             out_shardings=everywhere)
    self._about = repr((model, config, nbest, PAD_ID, BOS_ID, EOS_ID))
    self._compiled: dict[int, Callable] = {}
    self._tracing = threading.Lock()
    self._root = jax.random.key(seed, impl='threefry2x32') if config.sample else None

  def __call__(self, params, sentences: Sequence[str], first: int = 0) -> list[Translation]:
    """Translates sentences, and returns the translations in the same order.

    Args:
      params: the model's parameters; for several models, a sequence of their parameters.
      sentences: one line of text each.
      first: the number of sentences translated before these; samples depend on it.
    """
    encoded = self._vocabulary.encode_batch(list(sentences))
    answers = [Translation('', 0.0, False, (('', 0.0),))] * len(sentences)
    asked = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    batches = list(self._batches(asked, encoded))

    def translate(batch, params):
      length, chosen = batch
      source = np.full((self._config.batch_size, length), PAD_ID, np.int32)
      limits = np.zeros(self._config.batch_size, np.int32)
      for row, index in enumerate(chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source[row, :len(ids)] = ids
        limits[row] = len(ids) + self._config.max_extra_length
      best = self._run(params, self._placed(source, limits, self._keys(chosen, first)))
      for row, index in enumerate(chosen):
        nbest = self._nbest_of(best, row)
        # If the log-probabilities are NaN, there may be no best hypothesis.
        text, score = nbest[0] if nbest else ('', float(best.scores[row, 0]))
        answers[index] = Translation(text, score, len(encoded[index]) >= self._max_length, nbest)

    if self._devices:
      share(batches, translate, self._devices, params)
    else:
      for batch in batches:
        translate(batch, params)
    return answers

  def _run(self, params, batch) -> Hypotheses:
    """Searches for the translations of a batch: a source, limits, and keys or None."""
    length = batch[0].shape[1]
    if not self._devices or self._root is not None:
      return jax.device_get(self._compiled.get(length, self._search)(params, *batch))
    *arrays, _ = batch
    with self._tracing:
      if length not in self._compiled:
        self._compiled[length] = keep_traced(
            lambda params, source_BS, limits_B: tuple(self._search(params, source_BS, limits_B)),
            self._about, ('ops', 'model', 'inference'), (params, *arrays))
    return Hypotheses(*jax.device_get(self._compiled[length](params, *arrays)))

  def _nbest_of(self, best: Hypotheses, row: int) -> tuple[tuple[str, float], ...]:
    """Returns the texts and the scores in a row of a search's result."""
    return tuple((self._vocabulary.decode(best.tokens[row, place]), float(best.scores[row, place]))
                 for place in range(self._nbest) if best.lengths[row, place])

  def compile_longest(self, params, sentences: Sequence[str]):
    """Compiles the search for the longest sentence ahead of time.

    Args:
      params: parameters, or their shapes and shardings; the program takes no others.
      sentences: text.

    Returns:
      The padded length of the longest sentence, and the compiled program.
    """
    longest = max(map(len, self._vocabulary.encode_batch(list(sentences))))
    length, size = padded_length(longest + 1, self._max_length), self._config.batch_size
    self._compiled[length] = self._search.lower(
        params, *self._placed(np.full((size, length), PAD_ID, np.int32), np.zeros(size, np.int32),
                              self._keys([]))).compile()
    return length, self._compiled[length]

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

  def _batches(self, asked, encoded) -> Iterator[tuple[int, list[int]]]:
    """Yields the padded length of a batch and the indices of its sentences, shortest first."""
    buckets: dict[int, list[int]] = {}
    for index in sorted(asked, key=lambda i: len(encoded[i])):
      buckets.setdefault(padded_length(len(encoded[index]) + 1, self._max_length), []).append(index)
    size = self._config.batch_size
    for length, members in buckets.items():
      for first in range(0, len(members), size):
        yield length, members[first:first + size]
