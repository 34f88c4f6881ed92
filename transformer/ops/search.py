"""Greedy search over any step function, and what all searches share.

A step function is `(tokens_BW, cache) -> (log_probs_BWN, cache)`. For each of B inputs it takes
the last token of W hypotheses, and returns the log-probabilities of the next token. A `Search` adds
token after token; between two of them, a caller may stop and keep its state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.selection import take, top_k

PAD = 0
# The length at first, in tokens, of a cache that grows.
_FIRST_LENGTH = 16


class Cache(NamedTuple):
  """The state that a step function keeps from one token to the next, as two pytrees."""

  own: Any  # of each hypothesis, leaves [B, W, ...]; the search reorders it with the hypotheses
  common: Any  # all other state, which the search never reorders


class Hypotheses(NamedTuple):
  """The W best hypotheses of each input, best first.

  If an input has fewer than W hypotheses, the last ones have length 0, log-probability −inf and
  score −inf.
  """

  tokens: jax.Array  # int32 [B, W, T], the end token included, `PAD` after it
  lengths: jax.Array  # int32 [B, W], number of tokens before the padding
  log_probs: jax.Array  # float32 [B, W], natural logarithms, summed over tokens
  scores: jax.Array  # float32 [B, W], log-probability divided by the length penalty


class SearchOptions(NamedTuple):
  """Options that all searches share.

  Attributes:
    max_length: T, the length of the returned token arrays; no input's limit is larger.
    begin_id: the token before the first one of every hypothesis.
    end_id: the token that ends a hypothesis.
    alpha: exponent of the length penalty in the scores; with 0 a score is the log-probability.
    grow: a function (cache, length) -> cache that gives it room for `length` tokens and keeps its
      content. The first cache has room for none; its length doubles when it is full, so that short
      hypotheses cost less. None is for a cache with room for `max_length` tokens.
  """

  max_length: int
  begin_id: int
  end_id: int
  alpha: float = 0.6
  grow: Callable[[Cache, int], Cache] | None = None


class Search(NamedTuple):
  """A search in three parts.

  Attributes:
    start: the state before the first token, a named tuple. Its `t` is the number of tokens so
      far, `done` [B, ...] says whether the search is over, and `cache` is that of the step
      function. `t` and other scalars are the same for all inputs.
    advance: a function state -> state that adds a token.
    finish: a function state -> `Hypotheses`, which does not read the cache.
    options: of the search.
  """

  start: Any
  advance: Callable[[Any], Any]
  finish: Callable[[Any], Hypotheses]
  options: SearchOptions


def run_search(search: Search) -> Hypotheses:
  """Adds tokens until the search for every input is over, and returns what it finds."""
  state = search.start
  grow = search.options.grow
  longest = search.options.max_length
  for length in cache_lengths(longest) if grow else [longest]:
    if grow:
      state = state._replace(cache=grow(state.cache, length))
    state = advance_until(search, state, length)
  return search.finish(state)


def advance_until(search: Search, state, t) -> Any:
  """Adds tokens until there are `t` of them, or the search for every input is over."""
  return jax.lax.while_loop(
    lambda state: (state.t < t) & ~jnp.all(state.done), search.advance, state
  )


def cache_lengths(max_length) -> list[int]:
  """Returns the lengths that a cache grows to, each twice the one before; the last is the whole."""
  lengths = [_FIRST_LENGTH]
  while 2 * lengths[-1] <= max_length:
    lengths.append(2 * lengths[-1])
  return [*lengths[:-1], max_length]


def normalised(logits_BWN) -> tuple[jax.Array, list[jax.Array]]:
  """Returns float32 [B, W, N] and terms [B, W], whose sums are the log-probabilities of logits.

  So a beam search need not write all log-probabilities on a CPU, where the barriers keep XLA from
  doing it. Other platforms have kernels for the whole function, and the terms are 0.
  """

  def on_cpu(logits_BWN):
    barrier = jax.lax.optimization_barrier
    logits_BWN = barrier(logits_BWN)
    largest_BW = barrier(jnp.max(logits_BWN, axis=-1))
    total_BW = barrier(jnp.sum(jnp.exp(logits_BWN - largest_BW[:, :, None]), axis=-1))
    return logits_BWN, [-largest_BW, -jnp.log(total_BW)]

  def elsewhere(logits_BWN):
    no_term_BW = jnp.zeros(logits_BWN.shape[:2])
    return jax.nn.log_softmax(logits_BWN), [no_term_BW, no_term_BW]

  return jax.lax.platform_dependent(logits_BWN, cpu=on_cpu, default=elsewhere)


def length_penalty(length, alpha) -> jax.Array:
  """Returns ((5 + n) / 6)^α for n tokens: Wu et al., 2016, equation 14."""
  return ((5.0 + length) / 6.0) ** alpha


def greedy_search(step, cache, limits_B, options: SearchOptions) -> Search:
  """Takes the likeliest token at every position, up to the end token or the limit.

  Args:
    step: a step function, as this module describes it, called with W = 1.
    cache: the step function's `Cache` before the first token.
    limits_B: int32, the largest number of tokens in each input's hypotheses, the end token
      included. An input with limit 0 gets no hypothesis and costs nothing.

  Returns:
    The search, whose `Hypotheses` have W = 1.
  """
  return roll_out(
    lambda t, log_probs_BWN: jnp.argmax(log_probs_BWN, axis=-1),
    step,
    cache,
    limits_B,
    1,
    options,
  )


class RollOut(NamedTuple):
  """The state of `roll_out` after t tokens; the arrays of `Hypotheses` have their shapes."""

  t: jax.Array
  last: jax.Array  # [B, W], the newest token
  cache: Cache
  tokens: jax.Array
  lengths: jax.Array
  log_probs: jax.Array
  done: jax.Array  # [B, W], whether the hypothesis has ended


def roll_out(choose, step, cache, limits_B, width, options: SearchOptions) -> Search:
  """Extends W independent hypotheses of each input by one chosen token at every step.

  `choose` is a function (t, log_probs_BWN) -> tokens_BW for position t, and `width` is W. All else
  is as in `greedy_search`; the `Hypotheses` are not sorted by score.
  """
  shape = limits_B.shape[0], width

  def advance(state: RollOut) -> RollOut:
    t, last_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW = state
    log_probs_BWN, cache = step(last_BW, cache)
    token_BW = choose(t, log_probs_BWN).astype(jnp.int32)
    gain_BW = jnp.take_along_axis(log_probs_BWN, token_BW[:, :, None], axis=-1)[:, :, 0]
    tokens_BWT = tokens_BWT.at[:, :, t].set(jnp.where(done_BW, PAD, token_BW))
    lengths_BW = jnp.where(done_BW, lengths_BW, t + 1)
    log_probs_BW = jnp.where(done_BW, log_probs_BW, log_probs_BW + gain_BW)
    done_BW |= (token_BW == options.end_id) | (t + 1 >= limits_B)[:, None]
    return RollOut(
      t + 1, token_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW
    )

  def finish(state: RollOut) -> Hypotheses:
    log_probs_BW = jnp.where(state.lengths > 0, state.log_probs, -jnp.inf)
    return Hypotheses(
      state.tokens,
      state.lengths,
      log_probs_BW,
      log_probs_BW / length_penalty(state.lengths, options.alpha),
    )

  start = RollOut(
    jnp.int32(0),
    jnp.full(shape, options.begin_id, jnp.int32),
    cache,
    jnp.full((*shape, options.max_length), PAD, jnp.int32),
    jnp.zeros(shape, jnp.int32),
    jnp.zeros(shape, jnp.float32),
    jnp.broadcast_to((limits_B <= 0)[:, None], shape),
  )
  return Search(start, advance, finish, options)


def best(hypotheses: Hypotheses, count) -> Hypotheses:
  """Returns the `count` best hypotheses by descending score; ties keep their order."""
  _, chosen = top_k(hypotheses.scores, count)
  return jax.tree.map(lambda leaf: take(leaf, chosen), hypotheses)
