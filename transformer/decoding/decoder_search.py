"""Search for translations with models: the encoder, decoder steps, and a search from `ops`."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer import plugins
from transformer.data.batch import BOS_ID, EOS_ID
from transformer.decoding.batching import encoder_inputs
from transformer.decoding.config import DecodeOptions
from transformer.decoding.constraint import Constraint, apply_constraint
from transformer.errors import UserError, short_repr
from transformer.model.building import Model
from transformer.ops.beam_search import beam_search
from transformer.ops.sampling import SamplingOptions, greedy_search, sample_search
from transformer.ops.search import Search, SearchOptions, plain_arrays, with_arrays
from transformer.ops.selection import add_terms, log_softmax_terms


class SearchInputs(NamedTuple):
  """The inputs of a search, for each sentence of a batch."""

  sources: Any  # int32 [B, S], padded ids; after encoding, the first result of `start`
  limits_B: Any  # int32, maximum number of tokens of a translation, EOS included
  keys_B: Any = None  # data of `threefry2x32` keys, only for sampling
  constraint_arrays: Any = None  # None if unconstrained


@dataclasses.dataclass(frozen=True)
class DecoderSearch:
  """A search with models whose probabilities are averaged; its methods are pure functions."""

  models: Sequence[Model]
  decoding: DecodeOptions
  constraint: type[Constraint] = Constraint  # on the translations

  def start(self, params: Sequence, source_BS) -> tuple[tuple, tuple]:
    """Encodes padded source ids, EOS included; `params` has the parameters of each model.

    Returns:
      For each model, the state before the first token, and the encoded sources that steps read.
    """
    rows = encoder_inputs(source_BS)
    beams = self.decoding.beam_size
    started = [apply(*rows, beams, method='start') for apply in self._applies(params)]
    states, sources = zip(*started, strict=True)
    return states, sources

  def build_search(
    self,
    params: Sequence,
    inputs: SearchInputs,
    states: tuple,
    max_length: int,
    tables=(),
  ) -> Search:
    """Returns the search of `ops` for encoded sources.

    Args:
      states: from `start`; () if the search continues from a later state.
      max_length: maximum tokens of any translation.
      tables: the constraint's arrays that all sentences share.
    """
    decoding = self.decoding
    beams = decoding.beam_size
    limits_B = inputs.limits_B
    constraint_arrays = inputs.constraint_arrays
    custom = decoding.search != 'default'
    needs_log_probs = (
      decoding.sample or custom or beams == 1 or constraint_arrays is not None
    )
    step = self._step(params, inputs.sources, needs_log_probs)
    policy = None
    if constraint_arrays is not None:
      shape = len(limits_B), beams
      step, states = apply_constraint(
        self.constraint, constraint_arrays, tables, step, states, shape
      )
      policy = self.constraint.policy(constraint_arrays, tables, beams)
    options = SearchOptions(max_length, BOS_ID, EOS_ID, decoding.alpha)
    if policy is not None and (decoding.sample or custom):
      raise UserError(
        'this constraint requires the default beam search; remove --sample, and pass '
        '--search=default'
      )
    if decoding.sample:
      return sample_search(
        step,
        states,
        limits_B,
        jax.random.wrap_key_data(inputs.keys_B, impl='threefry2x32'),
        options,
        samples=beams,
        sampling=SamplingOptions(decoding.temperature, decoding.top_k, decoding.top_p),
      )
    parts = step, states, limits_B, options
    if custom:
      search = plugins.build(decoding.search, 'search', *parts, beams, decoding.nbest)
      if not isinstance(search, Search):
        raise UserError(
          f'the search {plugins.name_of(decoding.search)} must return a Search of '
          f'transformer.ops.search; got {short_repr(search)}'
        )
      return search
    if beams == 1 and policy is None:
      return greedy_search(*parts)
    return beam_search(*parts, beam_size=beams, nbest=decoding.nbest, policy=policy)

  def _step(self, params, sources: tuple, needs_log_probs: bool):
    """Returns the models' step function, to the log-probabilities of the next token.

    A single model returns `log_softmax_terms` instead, unless `needs_log_probs`.
    """
    applies = self._applies(params)
    sources = plain_arrays(sources)

    def step(tokens_BW, t, states):
      log_probs = []
      new_states = []
      for apply, state, source in zip(applies, states, sources, strict=True):
        logits_BWN, new = apply(
          tokens_BW, t, plain_arrays(state), source, method='step'
        )
        log_probs.append(log_softmax_terms(logits_BWN))
        new_states.append(with_arrays(state, new))
      if len(log_probs) == 1 and not needs_log_probs:
        return log_probs[0], tuple(new_states)
      mean_BWN = log_mean_probability([add_terms(*parts) for parts in log_probs])
      return mean_BWN, tuple(new_states)

    return step

  def _applies(self, params):
    """Returns the `apply` of each model, with its parameters and the dtype of the search."""
    applies = []
    for model, model_params in zip(self.models, params, strict=True):
      if self.decoding.dtype != DecodeOptions.dtype:
        model = model.clone(config=model.config.with_dtype(self.decoding.dtype))
      if hasattr(model, 'search_params'):
        model_params = model.search_params(model_params)
      applies.append(functools.partial(model.apply, {'params': model_params}))
    return applies


def random_keys(decoding: DecodeOptions, indices: Sequence[int]) -> Any:
  """Returns the key data of one random key per sentence index; None without sampling."""
  if not decoding.sample:
    return None
  key = jax.random.key(decoding.seed, impl='threefry2x32')
  fold_in = jax.vmap(jax.random.fold_in, (None, 0))
  return np.asarray(jax.random.key_data(fold_in(key, np.array(indices, np.uint32))))


def log_mean_probability(log_probs: Sequence[jax.Array]) -> jax.Array:
  """Returns the log of the mean of distributions, which are given as log-probabilities."""
  if len(log_probs) == 1:
    return log_probs[0]
  return jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(log_probs))
