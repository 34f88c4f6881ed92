"""Sentences in, translations out, in the same order."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.inference.config import DecodeConfig
from transformer.model.transformer import Transformer
from transformer.ops.sampling import sample_search
from transformer.ops.search import Cache, Hypotheses, beam_search, greedy_search

_SHORTEST_BUCKET = 16
_MOST_EXTENSIONS = 2**31 - 1  # A search numbers them by int32.


class Translation(NamedTuple):
  """What became of a sentence.

  Attributes:
    text: the translation, one line; empty for a line without a word.
    score: log-probability over length penalty, natural logarithm; not finite where
      the model's log-probabilities are not.
    cut: the source was longer than the run's `max_length` and lost its end.
    nbest: as many as were asked for, or as there are, best first, each with its score.
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
      averaged, and of which `params` then are a sequence too.
    config: beam size, length penalty and the bound on length, or how to sample.
    nbest: the best of these many that a beam search is to find.

  Returns:
    A function (params, source_BS, limits_B, keys_B) -> `Hypotheses`: padded source
    ids with their end tokens, the most tokens that each translation may have, and
    a random key for each sentence, which only sampling needs. The encoder runs
    once a sentence, and so do the projections that cross-attention reads.
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

    def room(cache, length):
      (index, caches), more = cache.common, length - cache.own.shape[-1]
      return Cache(jnp.pad(cache.own, ((0, 0), (0, 0), (0, more))),
                   (index, tuple(tuple(layer.with_room(length * beams) for layer in layers)
                                 for layers in caches)))

    beams = config.beam_size
    cache = Cache(jnp.zeros((batch, beams, 0), jnp.int32),
                  (jnp.int32(0), tuple(apply((batch,), beams, 0, method='empty_cache')
                                       for apply in applies)))
    options = {'max_length': max_length, 'begin_id': BOS_ID, 'end_id': EOS_ID,
               'alpha': config.alpha, 'room': room}
    if config.sample:
      return sample_search(step, cache, limits_B, keys_B, samples=beams, top_k=config.top_k,
                           top_p=config.top_p, temperature=config.temperature, **options)
    if beams == 1:
      return greedy_search(step, cache, limits_B, **options)
    return beam_search(step, cache, limits_B, beam_size=beams, nbest=nbest, **options)

  return search


def padded_length(length: int, most: int) -> int:
  """What so many tokens are padded to, so that few lengths are compiled: a power of two, or `most`.

  Args:
    length: tokens, the end token included.
    most: where longer ones are cut.
  """
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), most)


def mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """The logarithm of the mean of several distributions, given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))


class Translator:
  """A model, a vocabulary and a search, compiled once for each length of source.

  Sources are padded to a power of two, and batches to `decode.batch_size`
  sentences, so that every shape that a sentence meets depends on it, on the config
  and on how many devices share a batch, and on nothing else. What is sampled depends on
  the sentence's number among those given, too, so that a line that is repeated gets
  translations of its own.
  """

  def __init__(self, model: Transformer | Sequence[Transformer], vocabulary, config: DecodeConfig,
               max_length: int, seed: int = 0, rows: NamedSharding | None = None, nbest: int = 1):
    """Prepares to translate.

    Args:
      model: the Transformer, or several, as `make_search` takes them.
      vocabulary: encodes and decodes text.
      config: the search.
      max_length: the most tokens of a source, end token included; longer ones
        are cut.
      seed: the root of what is sampled, at least 0 and below 2³².
      rows: how the sentences of a batch are spread over devices; None keeps them on one.
      nbest: translations to give of each sentence, at most `beam_size`.

    Raises:
      UserError: there are fewer beams than that, or more than can be numbered.
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
    search = make_search(model, config, nbest)
    if rows is None:
      self._search = jax.jit(search)
    else:
      everywhere = NamedSharding(rows.mesh, PartitionSpec())
      self._search = jax.jit(search, in_shardings=(None, rows, rows, rows),
                             out_shardings=everywhere)
    self._rows = rows
    self._compiled: dict[int, Callable] = {}
    self._root = jax.random.key(seed, impl='threefry2x32') if config.sample else None

  def __call__(self, params, sentences: Sequence[str], first: int = 0) -> list[Translation]:
    """Translates sentences; the answers are in their order and of their number.

    Args:
      params: of the model, or of each of several.
      sentences: text, a line each.
      first: the number of the first, where others were translated before.
    """
    encoded = self._vocabulary.encode_batch(list(sentences))
    answers = [Translation('', 0.0, False, (('', 0.0),))] * len(sentences)
    asked = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    for length, chosen in self._batches(asked, encoded):
      source = np.full((self._config.batch_size, length), PAD_ID, np.int32)
      limits = np.zeros(self._config.batch_size, np.int32)
      for row, index in enumerate(chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source[row, :len(ids)] = ids
        limits[row] = len(ids) + self._config.max_extra_length
      search = self._compiled.get(length, self._search)
      batch = self._placed(source, limits, self._keys(chosen, first))
      best = jax.device_get(search(params, *batch))
      for row, index in enumerate(chosen):
        nbest = tuple((self._vocabulary.decode(best.tokens[row, place]),
                       float(best.scores[row, place]))
                      for place in range(self._nbest) if best.lengths[row, place])
        # Where log-probabilities are no numbers, no hypothesis may be the best.
        text, score = nbest[0] if nbest else ('', float(best.scores[row, 0]))
        answers[index] = Translation(text, score, len(encoded[index]) >= self._max_length, nbest)
    return answers

  def compile_longest(self, params, sentences: Sequence[str]):
    """Compiles the search for the longest of some sentences, for use when they are translated.

    Args:
      params: parameters, or their shapes with shardings; it is compiled for those alone.
      sentences: some text.

    Returns:
      The padded length of the longest, and the compiled program.
    """
    longest = max(map(len, self._vocabulary.encode_batch(list(sentences))))
    length, size = padded_length(longest + 1, self._max_length), self._config.batch_size
    self._compiled[length] = self._search.lower(
        params, *self._placed(np.full((size, length), PAD_ID, np.int32), np.zeros(size, np.int32),
                              self._keys([]))).compile()
    return length, self._compiled[length]

  def _placed(self, *arrays):
    """Puts arrays that are whole in every process onto the devices that a search spans."""
    if self._rows is None or jax.process_count() == 1:
      return arrays
    return jax.tree.map(lambda array: jax.make_array_from_callback(
        array.shape, self._rows, lambda index: array[index]), arrays)

  def _keys(self, chosen, first=0):
    """A random key for each row of a batch, by the numbers of its sentences."""
    if self._root is None:
      return None
    numbers = np.zeros(self._config.batch_size, np.uint32)
    numbers[:len(chosen)] = np.add(chosen, first)
    return jax.vmap(jax.random.fold_in, (None, 0))(self._root, numbers)

  def _batches(self, asked, encoded) -> Iterator[tuple[int, list[int]]]:
    """Groups sentences by padded length, neighbours in length together."""
    buckets: dict[int, list[int]] = {}
    for index in sorted(asked, key=lambda i: len(encoded[i])):
      buckets.setdefault(padded_length(len(encoded[index]) + 1, self._max_length), []).append(index)
    size = self._config.batch_size
    for length, members in buckets.items():
      for first in range(0, len(members), size):
        yield length, members[first:first + size]
