"""Greedy search and sampling over any step function; `ops.search` describes step functions.

The random key of each sample depends only on the key of its input and the index of the sample. So
a sample does not depend on other samples or inputs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.search import (
  PAD,
  Hypotheses,
  Search,
  SearchOptions,
  length_penalty,
  top_hypotheses,
)

# The smallest normal float32; smaller numbers may be flushed to 0.
_SMALLEST = float(jnp.finfo(jnp.float32).tiny)
# Relative error of a float32 sum. A sum that is smaller than p only by this fraction counts as p.
_ROUNDING = 1e-6


def greedy_search(step, cache, limits_B, options: SearchOptions) -> Search:
  """Selects the most probable token at every position, until EOS or the limit.

  Args:
    step: a step function (see `ops.search`), called with W = 1.
    cache: the cache of the step function before the first token.
    limits_B: int32, maximum tokens per hypothesis of each input, EOS included. An input with
      limit 0 gets no hypothesis and does not prolong the search.
    options: the length of the token arrays, BOS and EOS, and the length penalty of the scores.

  Returns:
    The search, whose `Hypotheses` have W = 1.
  """
  return rollout(
    lambda t, log_probs_BWN: jnp.argmax(log_probs_BWN, axis=-1),
    step,
    cache,
    limits_B,
    1,
    options,
  )


class RolloutState(NamedTuple):
  """The state of `rollout` after t tokens; arrays named as in `Hypotheses` have its shapes."""

  t: jax.Array
  last: jax.Array  # [B, W], the latest token
  cache: Any
  tokens: jax.Array
  lengths: jax.Array
  log_probs: jax.Array
  done: jax.Array  # [B, W], whether the hypothesis is finished


def rollout(choose, step, cache, limits_B, width, options: SearchOptions) -> Search:
  """Extends W independent hypotheses of each input by one token per step.

  `choose` is a function (t, log_probs_BWN) -> tokens_BW for position t, and `width` is W. The other
  arguments are as in `greedy_search`; the `Hypotheses` are sorted by score.
  """
  shape = limits_B.shape[0], width

  def add_token(state: RolloutState) -> RolloutState:
    t, last_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW = state
    log_probs_BWN, cache = step(last_BW, t, cache)
    token_BW = choose(t, log_probs_BWN).astype(jnp.int32)
    gain_BW = jnp.take_along_axis(log_probs_BWN, token_BW[:, :, None], axis=-1)[:, :, 0]
    tokens_BWT = tokens_BWT.at[:, :, t].set(jnp.where(done_BW, PAD, token_BW))
    lengths_BW = jnp.where(done_BW, lengths_BW, t + 1)
    log_probs_BW = jnp.where(done_BW, log_probs_BW, log_probs_BW + gain_BW)
    done_BW |= (token_BW == options.eos_id) | (t + 1 >= limits_B)[:, None]
    return RolloutState(
      t + 1, token_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW
    )

  def finish(state: RolloutState) -> Hypotheses:
    log_probs_BW = jnp.where(state.lengths > 0, state.log_probs, -jnp.inf)
    scores_BW = log_probs_BW / length_penalty(state.lengths, options.alpha)
    hypotheses = Hypotheses(state.tokens, state.lengths, log_probs_BW, scores_BW)
    return top_hypotheses(hypotheses, width)

  initial_state = RolloutState(
    jnp.int32(0),
    jnp.full(shape, options.bos_id, jnp.int32),
    cache,
    jnp.full((*shape, options.max_length), PAD, jnp.int32),
    jnp.zeros(shape, jnp.int32),
    jnp.zeros(shape, jnp.float32),
    jnp.broadcast_to((limits_B <= 0)[:, None], shape),
  )
  return Search(initial_state, add_token, finish, options)


class SamplingOptions(NamedTuple):
  """The distribution that tokens are sampled from.

  Attributes:
    temperature: divisor of the log-probabilities; below 1 it favors probable tokens.
    top_k: keeps the k most probable tokens (Fan et al., 2018). Ties with the k-th are kept.
      0 keeps all tokens.
    top_p: keeps the nucleus, the smallest set of most probable tokens whose probabilities add up
      to p (Holtzman et al., 2020, section 3.1); at least one token. Ties with the least probable
      one are kept. 1 keeps all tokens. It applies after `temperature` and `top_k`.
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0


def sample_search(
  step,
  cache,
  limits_B,
  keys_B,
  options: SearchOptions,
  *,
  samples: int,
  sampling: SamplingOptions,
) -> Search:
  """Samples W hypotheses of each input, token by token and independently of each other.

  Two hypotheses may be equal. Sample w of an input does not depend on the number of samples.

  Args:
    step, cache, limits_B, options: as in `greedy_search`, with W = `samples`.
    keys_B: JAX random keys. With the default generator, `threefry2x32`, samples do not depend on
      the sharding of the inputs.
    samples: W.
    sampling: temperature and truncation of the distribution to sample from.

  Returns:
    The search, whose `Hypotheses` are sorted by score. Log-probabilities and scores are from the
    step function, before temperature and truncation.
  """
  numbers_W = jnp.arange(samples, dtype=jnp.uint32)
  fold_in = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
  keys_BW = fold_in(keys_B, numbers_W)

  def choose(t, log_probs_BWN):
    def draw(key, log_probs_N):
      return jax.random.categorical(jax.random.fold_in(key, t), log_probs_N)

    return jax.vmap(jax.vmap(draw))(
      keys_BW, apply_sampling_options(log_probs_BWN, sampling)
    )

  return rollout(choose, step, cache, limits_B, samples, options)


def apply_sampling_options(log_probs_BWN, options: SamplingOptions) -> jax.Array:
  """Applies temperature, top-k and top-p to log-probabilities, and renormalizes them.

  Any leading axes are allowed. Removed tokens, and tokens that had −inf, get −inf.
  """
  temperature, top_k, top_p = options
  relative_BWN = log_probs_BWN - jnp.max(log_probs_BWN, axis=-1, keepdims=True)
  kept_BWN = log_probs_BWN > -jnp.inf
  if top_k:
    rank_BWN = _ranks(relative_BWN)
    kept_BWN &= rank_BWN <= _rank_at_sum(rank_BWN, jnp.ones_like(relative_BWN), top_k)
  # The most probable token is at 0, so it stays finite at any temperature.
  scaled_BWN = jax.nn.log_softmax(
    relative_BWN / max(temperature, _SMALLEST), where=kept_BWN
  )
  if top_p == 1.0:
    return scaled_BWN
  target = max(top_p * (1.0 - _ROUNDING), _SMALLEST)
  rank_BWN = _ranks(scaled_BWN)
  last_BW1 = _rank_at_sum(rank_BWN, jnp.exp(scaled_BWN), target)
  return jax.nn.log_softmax(scaled_BWN, where=kept_BWN & (rank_BWN <= last_BW1))


def _ranks(log_probs_BWN):
  """Returns int32 that increase as probabilities fall; the bits of floats ≥ 0 sort like floats."""
  return jax.lax.bitcast_convert_type(jnp.abs(log_probs_BWN), jnp.int32)


def _rank_at_sum(rank_BWN, weights_BWN, target):
  """Returns the lowest rank at which the cumulative weight reaches `target`.

  If the sum of all weights is smaller than `target`, returns the largest int32. It is a binary
  search over 31 bits, with one sum over the vocabulary per bit. On a CPU, sorting takes seven to
  ten times as long.
  """

  def add_bit(index, rank_BW1):
    higher_BW1 = rank_BW1 | (jnp.int32(1) << (30 - index))
    sum_BW1 = jnp.sum(weights_BWN, axis=-1, keepdims=True, where=rank_BWN < higher_BW1)
    return jnp.where(sum_BW1 < target, higher_BW1, rank_BW1)

  zeros_BW1 = jnp.zeros((*rank_BWN.shape[:-1], 1), jnp.int32)
  return jax.lax.fori_loop(0, 31, add_bit, zeros_BW1)
