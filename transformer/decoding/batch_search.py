"""The search for a batch of sources: the encoder, the decoder's steps and a search of `ops`."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import Constraint, obeying
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.ops.beam_search import plan_beam_search, plan_beams
from transformer.ops.linear import log_softmax
from transformer.ops.sampling import SamplingOptions, plan_samples
from transformer.ops.search import Cache, Hypotheses, SearchOptions, plan_greedy_search
from transformer.ops.search_loop import Search, run_search


class Encoded(NamedTuple):
  """Encoded sources: all that the decoder reads of them.

  Attributes:
    real_BS: boolean, True at tokens that are not padding.
    memories: for each model, the keys and values of each decoder layer's cross-attention.
  """

  real_BS: jax.Array
  memories: Any

  def padded_to(self, length) -> 'Encoded':
    """Returns the sources with S = `length`."""
    more = length - self.real_BS.shape[-1]
    return Encoded(jnp.pad(self.real_BS, ((0, 0), (0, more))),
                   tuple(tuple(layer.padded_to(length) for layer in layers)
                         for layers in self.memories))


class BatchSearch:
  """The search for a batch of sources, whole or in parts: pure functions on arrays.

  The encoder and the projections of its output for cross-attention are computed once for each
  sentence.
  """

  def __init__(self, model: Transformer | Sequence[Transformer], config: DecodeConfig,
               nbest: int = 1, constraint: type[Constraint] = Constraint):
    """Chooses the search.

    Args:
      model: the Transformer; or several, whose probabilities of the next token are
        averaged. Then `params` is a sequence too.
      config: beam size, length penalty, limit of length and type; or how to sample.
      nbest: the number of hypotheses that a beam search returns.
      constraint: the class of what the hypotheses must obey.
    """
    self.config = config
    models = [model] if isinstance(model, Transformer) else model
    self._models = [_computing_in(config.dtype, each) for each in models]
    self._is_one = isinstance(model, Transformer)
    self._nbest = nbest
    self.constraint = constraint

  def __call__(self, params, source_BS, limits_B, keys_B=None, rows=None, tables=()) -> Hypotheses:
    """Searches for translations.

    Args:
      params: the parameters of the model, or of each model.
      source_BS: padded source ids with their end tokens.
      limits_B: the largest number of tokens for each translation.
      keys_B: the data of a `threefry2x32` key for each sentence; only sampling needs them.
      rows: the constraint's arrays of the sentences.
      tables: the constraint's other arrays.
    """
    encoded = self.encode(params, source_BS)
    return run_search(*self.plan(params, encoded, limits_B, keys_B, rows, tables))

  def encode(self, params, source_BS) -> Encoded:
    """Encodes padded source ids, with their end tokens."""
    real_BS = source_BS != PAD_ID
    positions_BS = jnp.broadcast_to(jnp.arange(source_BS.shape[1], dtype=jnp.int32),
                                    source_BS.shape)
    memories = []
    for apply in self._applies(params):
      memory_BSD = apply(source_BS, real_BS.astype(jnp.int32), positions_BS, method='encode')
      memories.append(apply(memory_BSD, method='cache_memory'))
    return Encoded(real_BS, tuple(memories))

  def plan(self, params, encoded: Encoded, limits_B, keys_B=None, rows=None, tables=()
           ) -> tuple[Search, SearchOptions]:
    """Returns a search of `ops` for encoded sources, and its options; otherwise as a call."""
    config, beams = self.config, self.config.beam_size
    step, cache, grow = obeying(self.constraint, rows, tables, *self._steps(params, encoded),
                                (len(encoded.real_BS), beams))
    options = SearchOptions(encoded.real_BS.shape[1] + config.max_extra_length, BOS_ID, EOS_ID,
                            config.alpha, grow)
    given = step, cache, limits_B, options
    policy = self.constraint.policy(rows, tables, beams)
    if config.sample:
      if policy is not None:
        raise UserError('this constraint chooses among the beams of a search; leave out --sample, '
                        'or give --nosample')
      keys_B = jax.random.wrap_key_data(keys_B, impl='threefry2x32')
      return plan_samples(*given, keys_B, beams, SamplingOptions(
          config.temperature, config.top_k, config.top_p)), options
    if policy is not None:
      return plan_beams(policy, *given, (beams, self._nbest)), options
    if beams == 1:
      return plan_greedy_search(*given), options
    return plan_beam_search(*given, beam_size=beams, nbest=self._nbest), options

  def _steps(self, params, encoded: Encoded):
    """Returns the step function, its empty cache and the growth of the cache."""
    real_BS, memories = encoded
    applies, beams, batch = self._applies(params), self.config.beam_size, len(real_BS)

    def step(tokens_BW, cache):
      index, caches = cache.common
      log_probs, grown = [], []
      for apply, layers, memory in zip(applies, caches, memories, strict=True):
        logits_BWN, lineage, layers = apply(tokens_BW, index, cache.own, layers, memory, real_BS,
                                            method='step')
        log_probs.append(log_softmax(logits_BWN))
        grown.append(layers)
      return mean_probability(log_probs), Cache(lineage, (index + 1, tuple(grown)))

    def grow(cache, length):
      (index, caches), more = cache.common, length - cache.own.shape[-1]
      return Cache(jnp.pad(cache.own, ((0, 0), (0, 0), (0, more))),
                   (index, tuple(tuple(layer.padded_to(length * beams) for layer in layers)
                                 for layers in caches)))

    cache = Cache(jnp.zeros((batch, beams, 0), jnp.int32),
                  (jnp.int32(0), tuple(apply((batch,), beams, 0, method='empty_cache')
                                       for apply in applies)))
    return step, cache, grow

  def _applies(self, params):
    """Returns the function `apply` of each model, with its parameters."""
    return [functools.partial(model.apply, {'params': own}) for model, own in zip(
        self._models, [params] if self._is_one else params, strict=True)]


def _computing_in(dtype: str, model: Transformer) -> Transformer:
  """Returns the model with another type of activations; `trained` leaves it as it is."""
  if dtype == DecodeConfig.dtype:
    return model
  return model.clone(config=model.config.with_dtype(dtype))


def mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """Returns the logarithm of the mean of several distributions, given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))
