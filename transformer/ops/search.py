"""Greedy search and beam search over any step function.

A step function is `(tokens_BW, cache) -> (log_probs_BWN, cache)`. For each of B inputs it takes
the last token of W hypotheses, and returns the log-probabilities of the next token. Two letters
belong to this file: C candidates for the beam, X extensions of all hypotheses of an input.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.search_loop import Search, run_search
from transformer.ops.selection import take, top_k, where_rows

PAD = 0


class Cache(NamedTuple):
  """The state that a step function keeps from one token to the next, as two pytrees.

  Attributes:
    own: state of each hypothesis, leaves [B, W, ...]. The search reorders it with the
      hypotheses.
    common: all other state, which the search never reorders.
  """

  own: Any
  common: Any


class Hypotheses(NamedTuple):
  """The W best hypotheses of each input, best first.

  If an input has fewer than W hypotheses, the last ones have length 0, log-probability −inf and
  score −inf.

  Attributes:
    tokens: int32 [B, W, T], the end token included, `PAD` after it.
    lengths: int32 [B, W], number of tokens before the padding.
    log_probs: float32 [B, W], natural logarithms, summed over tokens.
    scores: float32 [B, W], log-probability divided by the length penalty.
  """

  tokens: jax.Array
  lengths: jax.Array
  log_probs: jax.Array
  scores: jax.Array


class SearchOptions(NamedTuple):
  """Options that all searches share.

  Attributes:
    max_length: T, the length of the returned token arrays; no input's limit is larger.
    begin_id: the token before the first one of every hypothesis.
    end_id: the token that ends a hypothesis.
    alpha: exponent of the length penalty in the scores, at least 0. With 0 a score is the
      log-probability.
    grow: a function (cache, length) -> cache that gives the cache room for `length` tokens
      and keeps its content. The search starts with a short cache and doubles its length
      when it is full, so that short hypotheses cost less. None is for a cache that has
      room for `max_length` tokens.
  """

  max_length: int
  begin_id: int
  end_id: int
  alpha: float = 0.6
  grow: Callable[[Cache, int], Cache] | None = None


def length_penalty(length, alpha):
  """Returns ((5 + n) / 6)^α for n tokens: Wu et al., 2016, equation 14."""
  return ((5.0 + length) / 6.0) ** alpha


def greedy_search(step, cache, limits_B, options: SearchOptions) -> Hypotheses:
  """Takes the likeliest token at every position, up to the end token or the limit.

  Args:
    step: a step function, as this module describes it, called with W = 1.
    cache: the step function's `Cache` before the first token.
    limits_B: int32, the largest number of tokens in each input's hypotheses, the end token
      included. An input with limit 0 gets no hypothesis and costs nothing.
    options: as `SearchOptions` describes.

  Returns:
    `Hypotheses` with W = 1.
  """
  return run_search(plan_greedy_search(step, cache, limits_B, options), options)


def plan_greedy_search(step, cache, limits_B, options: SearchOptions) -> Search:
  """Returns `greedy_search` in parts; the same arguments."""
  return plan_roll_out(lambda t, log_probs_BWN: jnp.argmax(log_probs_BWN, axis=-1), step, cache,
                       limits_B, 1, options)


class _Draws(NamedTuple):
  """The state of `plan_roll_out` after t tokens."""

  t: jax.Array
  last: jax.Array  # [B, W], the newest token
  cache: Cache
  tokens: jax.Array  # [B, W, T]
  lengths: jax.Array  # [B, W]
  log_probs: jax.Array  # [B, W]
  done: jax.Array  # [B, W], whether the hypothesis has ended


def plan_roll_out(choose, step, cache, limits_B, width, options: SearchOptions) -> Search:
  """Plans to extend W independent hypotheses of each input by one chosen token at every step.

  Args:
    choose: a function (t, log_probs_BWN) -> tokens_BW that chooses the tokens at position t.
    step, cache, limits_B, options: as in `greedy_search`, with W = `width`.
    width: W.

  Returns:
    The search in parts, whose `Hypotheses` are not sorted by score.
  """
  shape = limits_B.shape[0], width

  def advance(state: _Draws) -> _Draws:
    t, last_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW = state
    log_probs_BWN, cache = step(last_BW, cache)
    token_BW = choose(t, log_probs_BWN).astype(jnp.int32)
    gain_BW = jnp.take_along_axis(log_probs_BWN, token_BW[:, :, None], axis=-1)[:, :, 0]
    tokens_BWT = tokens_BWT.at[:, :, t].set(jnp.where(done_BW, PAD, token_BW))
    lengths_BW = jnp.where(done_BW, lengths_BW, t + 1)
    log_probs_BW = jnp.where(done_BW, log_probs_BW, log_probs_BW + gain_BW)
    done_BW |= (token_BW == options.end_id) | (t + 1 >= limits_B)[:, None]
    return _Draws(t + 1, token_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW)

  def finish(state: _Draws) -> Hypotheses:
    log_probs_BW = jnp.where(state.lengths > 0, state.log_probs, -jnp.inf)
    return Hypotheses(state.tokens, state.lengths, log_probs_BW,
                      log_probs_BW / length_penalty(state.lengths, options.alpha))

  start = _Draws(
      jnp.int32(0), jnp.full(shape, options.begin_id, jnp.int32), cache,
      jnp.full((*shape, options.max_length), PAD, jnp.int32), jnp.zeros(shape, jnp.int32),
      jnp.zeros(shape, jnp.float32), jnp.broadcast_to((limits_B <= 0)[:, None], shape))
  return Search(start, advance, finish)


class _Beams(NamedTuple):
  """The state of a beam search after t tokens."""

  t: jax.Array
  live_tokens: jax.Array  # [B, W, T]
  live_log_probs: jax.Array  # [B, W], descending; −inf where there is no hypothesis
  cache: Cache
  ended: Hypotheses  # the W best, by descending score
  ended_count: jax.Array  # [B], the number of all that have ended
  done: jax.Array  # [B], whether the search for an input is over


def beam_search(step, cache, limits_B, options: SearchOptions, *, beam_size, nbest=1
                ) -> Hypotheses:
  """Keeps the W likeliest hypotheses at every length (section 6.1; Wu et al., 2016, section 7).

  A hypothesis ends only when its end token is among the W best extensions of its step, so
  that a beam of one is greedy search. The search for an input is over

  - when W hypotheses have ended,
  - when no live hypothesis can overtake the `nbest`-th best ended one, or
  - at the input's limit. If none has ended by then, the live ones are the result.

  After that, the input's hypotheses stay as they are while the search for other inputs goes on.

  Args:
    step: a step function, as this module describes it, called with W = `beam_size`.
    cache, limits_B, options: as in `greedy_search`.
    beam_size: W.
    nbest: number of best hypotheses, at most W, that must be final before the search may end
      early.

  Returns:
    `Hypotheses`, sorted by score.
  """
  return run_search(plan_beam_search(step, cache, limits_B, options, beam_size=beam_size,
                                     nbest=nbest), options)


def plan_beam_search(step, cache, limits_B, options: SearchOptions, *, beam_size, nbest=1
                     ) -> Search:
  """Returns `beam_search` in parts; the same arguments."""
  batch = limits_B.shape[0]

  def advance(beams: _Beams) -> _Beams:
    t = beams.t
    last_BW = jnp.where(t == 0, options.begin_id, beams.live_tokens[:, :, jnp.maximum(t - 1, 0)])
    log_probs_BWN, cache = step(last_BW, beams.cache)
    vocabulary = log_probs_BWN.shape[-1]
    totals_BX = (beams.live_log_probs[:, :, None] + log_probs_BWN).reshape(batch, -1)
    # Each hypothesis has one extension by the end token, so at least W of 2W candidates go on.
    totals_BC, where_BC = top_k(totals_BX, min(2 * beam_size, totals_BX.shape[-1]))
    token_BC = (where_BC % vocabulary).astype(jnp.int32)
    origin_BC = where_BC // vocabulary
    is_end_BC = token_BC == options.end_id

    ending_BW = is_end_BC[:, :beam_size] & jnp.isfinite(totals_BC[:, :beam_size])
    scores_BW = jnp.where(
        ending_BW, totals_BC[:, :beam_size] / length_penalty(t + 1, options.alpha), -jnp.inf)
    ending = Hypotheses(
        take(beams.live_tokens, origin_BC[:, :beam_size]).at[:, :, t].set(options.end_id),
        jnp.full((batch, beam_size), t + 1, jnp.int32), totals_BC[:, :beam_size], scores_BW)
    ended = best(jax.tree.map(lambda old, new: jnp.concatenate([old, new], axis=1),
                              beams.ended, ending), beam_size)
    ended_count = beams.ended_count + jnp.sum(ending_BW, axis=1)

    live_log_probs, chosen_BW = top_k(jnp.where(is_end_BC, -jnp.inf, totals_BC), beam_size)
    origin_BW = jnp.take_along_axis(origin_BC, chosen_BW, axis=1)
    live_tokens = take(beams.live_tokens, origin_BW).at[:, :, t].set(
        jnp.take_along_axis(token_BC, chosen_BW, axis=1))
    if beam_size > 1:
      cache = cache._replace(own=jax.tree.map(lambda leaf: take(leaf, origin_BW), cache.own))

    # A bound on the scores of live hypotheses: more tokens only lower a log-probability, and
    # the length penalty is largest at the limit.
    bound_B = live_log_probs[:, 0] / length_penalty(limits_B, options.alpha)
    over_B = ((ended_count >= beam_size) | (ended.scores[:, nbest - 1] >= bound_B)
              | (t + 1 >= limits_B))
    live_tokens, live_log_probs, ended, ended_count = where_rows(
        beams.done, (beams.live_tokens, beams.live_log_probs, beams.ended, beams.ended_count),
        (live_tokens, live_log_probs, ended, ended_count))
    return _Beams(t + 1, live_tokens, live_log_probs, cache, ended, ended_count,
                  beams.done | over_B)

  none = jnp.full((batch, beam_size), -jnp.inf, jnp.float32)
  no_tokens = jnp.full((batch, beam_size, options.max_length), PAD, jnp.int32)
  no_lengths = jnp.zeros((batch, beam_size), jnp.int32)
  beams = _Beams(
      jnp.int32(0), no_tokens, none.at[:, 0].set(0.0), cache,
      Hypotheses(no_tokens, no_lengths, none, none), jnp.zeros(batch, jnp.int32), limits_B <= 0)
  return Search(beams, advance, lambda beams: _result(beams, limits_B, options))


def _result(beams: _Beams, limits_B, options: SearchOptions) -> Hypotheses:
  """Returns the hypotheses that have ended; where there are none, the live ones."""
  exists_BW = jnp.isfinite(beams.live_log_probs) & (limits_B > 0)[:, None]
  lengths_BW = jnp.where(exists_BW, limits_B[:, None], 0)
  live_scores_BW = beams.live_log_probs / length_penalty(lengths_BW, options.alpha)
  live = Hypotheses(
      jnp.where(exists_BW[:, :, None], beams.live_tokens, PAD), lengths_BW, beams.live_log_probs,
      jnp.where(exists_BW, live_scores_BW, -jnp.inf))
  result = where_rows(beams.ended_count > 0, beams.ended, live)
  missing_BW = jnp.isneginf(result.scores)
  return result._replace(tokens=jnp.where(missing_BW[:, :, None], PAD, result.tokens),
                         lengths=jnp.where(missing_BW, 0, result.lengths),
                         log_probs=jnp.where(missing_BW, -jnp.inf, result.log_probs))


def best(hypotheses: Hypotheses, count) -> Hypotheses:
  """Returns the `count` best hypotheses by descending score; ties keep their order."""
  _, chosen = top_k(hypotheses.scores, count)
  return jax.tree.map(lambda leaf: take(leaf, chosen), hypotheses)
