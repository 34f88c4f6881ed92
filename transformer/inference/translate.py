"""Sentences in, translations out, in the same order."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.inference.config import DecodeConfig
from transformer.model.transformer import Transformer
from transformer.ops.search import Cache, Hypotheses, beam_search, greedy_search

_SHORTEST_BUCKET = 16


class Translation(NamedTuple):
  """What became of a sentence.

  Attributes:
    text: the translation, one line; empty for a line without a word.
    score: log-probability over length penalty, natural logarithm.
    cut: the source was longer than the run's `max_length` and lost its end.
  """

  text: str
  score: float
  cut: bool


def make_search(model: Transformer, config: DecodeConfig) -> Callable[..., Hypotheses]:
  """Builds the search for a batch of encoded sources, a pure function on arrays.

  Args:
    model: the Transformer.
    config: beam size, length penalty and the bound on length.

  Returns:
    A function (params, source_BS, limits_B) -> `Hypotheses`: padded source ids
    with their end tokens, and the most tokens that each translation may have.
    The encoder runs once a sentence, and so do the projections that
    cross-attention reads.
  """

  def search(params, source_BS, limits_B) -> Hypotheses:
    apply = functools.partial(model.apply, {'params': params})
    batch, source_length = source_BS.shape
    max_length = source_length + config.max_extra_length
    real_BS = source_BS != PAD_ID
    positions_BS = jnp.broadcast_to(jnp.arange(source_length, dtype=jnp.int32), source_BS.shape)
    memory_BSD = apply(source_BS, real_BS.astype(jnp.int32), positions_BS, method='encode')
    memory = apply(memory_BSD, method='cache_memory')

    def step(tokens_BW, cache):
      index, layers = cache.common
      logits_BWN, lineage, layers = apply(tokens_BW, index, cache.own, layers, memory, real_BS,
                                          method='step')
      return jax.nn.log_softmax(logits_BWN), Cache(lineage, (index + 1, layers))

    def room(cache, length):
      (index, layers), more = cache.common, length - cache.own.shape[-1]
      return Cache(jnp.pad(cache.own, ((0, 0), (0, 0), (0, more))),
                   (index, tuple(layer.with_room(length * beams) for layer in layers)))

    beams = config.beam_size
    cache = Cache(jnp.zeros((batch, beams, 0), jnp.int32),
                  (jnp.int32(0), apply((batch,), beams, 0, method='empty_cache')))
    options = {'max_length': max_length, 'begin_id': BOS_ID, 'end_id': EOS_ID,
               'alpha': config.alpha, 'room': room}
    if beams == 1:
      return greedy_search(step, cache, limits_B, **options)
    return beam_search(step, cache, limits_B, beam_size=beams, **options)

  return search


class Translator:
  """A model, a vocabulary and a search, compiled once for each length of source.

  Sources are padded to a power of two, and batches to `decode.batch_size`
  sentences, so that every shape that a sentence meets depends on it and on the
  config alone.
  """

  def __init__(self, model: Transformer, vocabulary, config: DecodeConfig, max_length: int):
    """Prepares to translate.

    Args:
      model: the Transformer.
      vocabulary: encodes and decodes text.
      config: the search.
      max_length: the most tokens of a source, end token included; longer ones
        are cut.
    """
    self._vocabulary = vocabulary
    self._config = config
    self._max_length = max_length
    self._search = jax.jit(make_search(model, config))

  def __call__(self, params, sentences: Sequence[str]) -> list[Translation]:
    """Translates sentences; the answers are in their order and of their number."""
    encoded = self._vocabulary.encode_batch(list(sentences))
    answers = [Translation('', 0.0, False)] * len(sentences)
    asked = [i for i, sentence in enumerate(sentences) if sentence.strip()]
    for length, chosen in self._batches(asked, encoded):
      source = np.full((self._config.batch_size, length), PAD_ID, np.int32)
      limits = np.zeros(self._config.batch_size, np.int32)
      for row, index in enumerate(chosen):
        ids = [*encoded[index][:self._max_length - 1], EOS_ID]
        source[row, :len(ids)] = ids
        limits[row] = len(ids) + self._config.max_extra_length
      best = jax.device_get(self._search(params, source, limits))
      for row, index in enumerate(chosen):
        answers[index] = Translation(
            self._vocabulary.decode(best.tokens[row, 0]), float(best.scores[row, 0]),
            len(encoded[index]) >= self._max_length)
    return answers

  def _batches(self, asked, encoded) -> Iterator[tuple[int, list[int]]]:
    """Groups sentences by padded length, neighbours in length together."""
    buckets: dict[int, list[int]] = {}
    for index in sorted(asked, key=lambda i: len(encoded[i])):
      buckets.setdefault(self._padded_length(len(encoded[index]) + 1), []).append(index)
    size = self._config.batch_size
    for length, members in buckets.items():
      for first in range(0, len(members), size):
        yield length, members[first:first + size]

  def _padded_length(self, length: int) -> int:
    bucket = max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length())
    return min(bucket, self._max_length)
