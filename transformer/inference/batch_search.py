"""The search for a batch of sources: the encoder, the decoder's steps and a search of `ops`."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.inference.config import DecodeConfig
from transformer.model.transformer import Transformer
from transformer.ops.sampling import SamplingOptions, sample_search
from transformer.ops.search import Cache, Hypotheses, SearchOptions, beam_search, greedy_search
from transformer.ops.steering import Steered, Steering, steer


def make_search(model: Transformer | Sequence[Transformer],
                config: DecodeConfig, nbest: int = 1) -> Callable[..., Hypotheses]:
  """Builds the search for a batch of encoded sources, a pure function on arrays.

  Args:
    model: the Transformer; or several, whose probabilities of the next token are
      averaged. Then `params` is a sequence too.
    config: beam size, length penalty and limit of length; or how to sample.
    nbest: the number of hypotheses that a beam search returns.

  Returns:
    A function (params, source_BS, limits_B, keys_B, steering) -> `Hypotheses`. The encoder and
    the projections of its output for cross-attention are computed once for each sentence.
      source_BS: padded source ids with their end tokens.
      limits_B: the largest number of tokens for each translation.
      keys_B: a random key for each sentence; only sampling needs them.
      steering: what translations begin with and must not hold; None is nothing.
  """
  models = [model] if isinstance(model, Transformer) else model

  def search(params, source_BS, limits_B, keys_B=None, steering: Steering | None = None
             ) -> Hypotheses:
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
    steered = (Steered(step, cache, grow) if steering is None
               else steer(step, cache, grow, steering, beams))
    step, cache, grow = steered
    options = SearchOptions(max_length, BOS_ID, EOS_ID, config.alpha, grow)
    if config.sample:
      return sample_search(
          step, cache, limits_B, keys_B, options, samples=beams,
          sampling=SamplingOptions(config.temperature, config.top_k, config.top_p))
    if beams == 1:
      return greedy_search(step, cache, limits_B, options)
    return beam_search(step, cache, limits_B, options, beam_size=beams, nbest=nbest)

  return search


def mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """Returns the logarithm of the mean of several distributions, given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))
