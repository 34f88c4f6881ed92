"""The search for translations by models: the encoder, the decoder's steps and a search of `ops`."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer import own_code
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.decoding.config import DecodeConfig
from transformer.decoding.constraint import Constraint, obeying
from transformer.decoding.pairs import rows_of
from transformer.errors import UserError, shown
from transformer.model import search_state
from transformer.model.building import Model
from transformer.ops.beam_search import beam_search
from transformer.ops.sampling import SamplingOptions, sample_search
from transformer.ops.search import (
  Cache,
  Search,
  SearchOptions,
  greedy_search,
  normalised,
)
from transformer.ops.selection import add_terms


class Encoded(NamedTuple):
  """What a search reads of the sources; padding to a longer length changes no result."""

  is_token_BS: Any  # boolean, False at padding, as a `StateArray`
  sources: tuple[Any, ...]  # for each model, the first result of its `start`


@dataclasses.dataclass(frozen=True)
class ModelSearch:
  """A search by models, whose probabilities are averaged: pure functions on arrays."""

  models: Sequence[Model]
  config: DecodeConfig
  nbest: int = 1  # the number of hypotheses that a beam search must find
  constraint: type[Constraint] = Constraint  # what they must obey

  def start(self, params: Sequence, source_BS) -> tuple[Encoded, Cache]:
    """Encodes padded source ids, with their end tokens; `params` has those of each model.

    Returns:
      The encoded sources, and what the models' steps keep, before the first token.
    """
    started = [
      apply(*rows_of(source_BS), self.config.beam_size, method='start')
      for apply in self._applies(params)
    ]
    is_token_BS = search_state.StateArray(source_BS != PAD_ID, source_axis=-1)
    encoded = Encoded(is_token_BS, tuple(source for source, _ in started))
    by_hypothesis, others = search_state.split(tuple(state for _, state in started))
    return encoded, Cache(by_hypothesis, (jnp.int32(0), others))

  def plan(
    self,
    params: Sequence,
    started: tuple[Encoded, Cache],
    limits_B,
    keys_B=None,
    rows=None,
    tables=(),
  ) -> Search:
    """Returns the search of `ops` for encoded sources.

    Args:
      started: from `start`. To go on from a later state, `Cache((), ())` will do for the cache.
      limits_B: the largest numbers of tokens.
      keys_B: the data of `threefry2x32` keys, which only sampling needs.
      rows, tables: the constraint's arrays, of each sentence and of all.
    """
    config = self.config
    encoded, cache = started
    beams = config.beam_size
    batch, length = encoded.is_token_BS.array.shape
    custom = config.search != 'default'
    whole = config.sample or custom or beams == 1 or self.constraint is not Constraint
    step = self._step(params, encoded, whole)
    step, cache = obeying(self.constraint, rows, tables, step, cache, (batch, beams))
    options = SearchOptions(
      length + config.max_extra_length, BOS_ID, EOS_ID, config.alpha, search_state.grown
    )
    policy = self.constraint.policy(rows, tables, beams)
    if policy is not None and (config.sample or custom):
      raise UserError(
        'this constraint chooses among the beams of a beam search; leave out '
        '--sample and --search, or give --nosample'
      )
    if config.sample:
      sampling = SamplingOptions(config.temperature, config.top_k, config.top_p)
      return sample_search(
        step,
        cache,
        limits_B,
        jax.random.wrap_key_data(keys_B, impl='threefry2x32'),
        options,
        samples=beams,
        sampling=sampling,
      )
    if custom:
      return custom_search(
        config.search, step, cache, limits_B, options, beams, self.nbest
      )
    if beams == 1 and policy is None:
      return greedy_search(step, cache, limits_B, options)
    return beam_search(
      step, cache, limits_B, options, beam_size=beams, nbest=self.nbest, policy=policy
    )

  def _step(self, params, encoded: Encoded, whole: bool):
    """Returns the step function of the models; without `whole`, of one as `normalised` does."""
    applies = self._applies(params)
    sources = search_state.arrays(encoded.sources)

    def step(tokens_BW, cache):
      index, others = cache.common
      states = search_state.joined(cache.own, others)
      log_probs = []
      new_states = []
      for apply, state, source in zip(applies, states, sources, strict=True):
        logits_BWN, arrays = apply(
          tokens_BW, index, search_state.arrays(state), source, method='step'
        )
        log_probs.append(normalised(logits_BWN))
        new_states.append(search_state.with_arrays(state, arrays))
      by_hypothesis, others = search_state.split(tuple(new_states))
      cache = Cache(by_hypothesis, (index + 1, others))
      if len(log_probs) == 1 and not whole:
        return log_probs[0], cache
      return mean_probability([add_terms(*parts) for parts in log_probs]), cache

    return step

  def _applies(self, params):
    """Returns the `apply` of each model, with its parameters and the search's type."""
    models = self.models
    if self.config.dtype != DecodeConfig.dtype:
      models = [
        model.clone(config=model.config.with_dtype(self.config.dtype))
        for model in models
      ]
    return [
      functools.partial(model.apply, {'params': own})
      for model, own in zip(models, params, strict=True)
    ]


def custom_search(setting: own_code.Setting, *arguments: Any) -> Search:
  """Returns the search of `decode.search`, a function with the arguments of `beam_search`."""
  search = own_code.build(setting, 'search', *arguments)
  if not isinstance(search, Search):
    raise UserError(
      f'the search {own_code.name_of(setting)} must return a Search of '
      f'transformer.ops.search; got {shown(search)}'
    )
  return search


def random_keys(config: DecodeConfig, seed: int, numbers: Sequence[int]) -> Any:
  """Returns the data of a random key for each row of a batch; None without sampling.

  `numbers` are those of the sentences in the first rows.
  """
  if not config.sample:
    return None
  numbers_B = np.zeros(config.batch_size, np.uint32)
  numbers_B[: len(numbers)] = numbers
  key = jax.random.key(seed, impl='threefry2x32')
  return np.asarray(
    jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(key, numbers_B))
  )


def mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """Returns the logarithm of the mean of distributions, given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))
