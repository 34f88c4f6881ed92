"""The search for translations by models: the encoder, the decoder's steps and a search of `ops`."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import Constraint, obeying
from transformer.decoding.pairs import rows_of
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.ops.beam_search import beam_search
from transformer.ops.linear import log_softmax
from transformer.ops.sampling import SamplingOptions, sample_search
from transformer.ops.search import Cache, Search, SearchOptions, greedy_search


class Encoded(NamedTuple):
  """What the decoder reads of the sources."""

  real_BS: jax.Array  # boolean, True at tokens that are not padding
  memories: Any  # for each model, the keys and values of each layer's cross-attention

  def padded_to(self, length) -> 'Encoded':
    more = length - self.real_BS.shape[-1]
    return Encoded(jnp.pad(self.real_BS, ((0, 0), (0, more))),
                   tuple(tuple(layer.padded_to(length) for layer in layers)
                         for layers in self.memories))


@dataclasses.dataclass(frozen=True)
class ModelSearch:
  """A search by models, whose probabilities are averaged: pure functions on arrays."""

  models: Sequence[Transformer]
  config: DecodeConfig
  nbest: int = 1  # the number of hypotheses that a beam search must find
  constraint: type[Constraint] = Constraint  # what they must obey

  def encode(self, params: Sequence, source_BS) -> Encoded:
    """Encodes padded source ids, with their end tokens; `params` has those of each model."""
    memories = []
    for apply in self._applies(params):
      memory_BSD = apply(*rows_of(source_BS), method='encode')
      memories.append(apply(memory_BSD, method='cache_memory'))
    return Encoded(source_BS != PAD_ID, tuple(memories))

  def plan(self, params: Sequence, encoded: Encoded, limits_B, keys_B=None, rows=None, tables=()
           ) -> Search:
    """Returns the search of `ops` for encoded sources.

    `limits_B` are the largest numbers of tokens, `keys_B` the data of `threefry2x32` keys, which
    only sampling needs. The constraint's arrays are `rows`, of each sentence, and `tables`.
    """
    config = self.config
    beams = config.beam_size
    step, cache, grow = obeying(self.constraint, rows, tables, *self._steps(params, encoded),
                                (len(encoded.real_BS), beams))
    options = SearchOptions(encoded.real_BS.shape[1] + config.max_extra_length, BOS_ID, EOS_ID,
                            config.alpha, grow)
    policy = self.constraint.policy(rows, tables, beams)
    if config.sample:
      if policy is not None:
        raise UserError('this constraint chooses among the beams of a search; leave out --sample, '
                        'or give --nosample')
      sampling = SamplingOptions(config.temperature, config.top_k, config.top_p)
      return sample_search(step, cache, limits_B,
                           jax.random.wrap_key_data(keys_B, impl='threefry2x32'), options,
                           samples=beams, sampling=sampling)
    if beams == 1 and policy is None:
      return greedy_search(step, cache, limits_B, options)
    return beam_search(step, cache, limits_B, options, beam_size=beams, nbest=self.nbest,
                       policy=policy)

  def _steps(self, params, encoded: Encoded):
    """Returns the step function, its empty cache and the growth of the cache."""
    real_BS, memories = encoded
    applies = self._applies(params)
    beams = self.config.beam_size
    batch = len(real_BS)

    def step(tokens_BW, cache):
      index, caches = cache.common
      log_probs = []
      grown = []
      for apply, layers, memory in zip(applies, caches, memories, strict=True):
        logits_BWN, lineage, layers = apply(tokens_BW, index, cache.own, layers, memory, real_BS,
                                            method='step')
        log_probs.append(log_softmax(logits_BWN))
        grown.append(layers)
      return mean_probability(log_probs), Cache(lineage, (index + 1, tuple(grown)))

    def grow(cache, length):
      index, caches = cache.common
      more = length - cache.own.shape[-1]
      return Cache(jnp.pad(cache.own, ((0, 0), (0, 0), (0, more))),
                   (index, tuple(tuple(layer.padded_to(length * beams) for layer in layers)
                                 for layers in caches)))

    cache = Cache(jnp.zeros((batch, beams, 0), jnp.int32),
                  (jnp.int32(0), tuple(apply((batch,), beams, 0, method='empty_cache')
                                       for apply in applies)))
    return step, cache, grow

  def _applies(self, params):
    """Returns the `apply` of each model, with its parameters and the search's type."""
    models = self.models
    if self.config.dtype != DecodeConfig.dtype:
      models = [model.clone(config=model.config.with_dtype(self.config.dtype)) for model in models]
    return [functools.partial(model.apply, {'params': own})
            for model, own in zip(models, params, strict=True)]


def mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """Returns the logarithm of the mean of distributions, given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))
