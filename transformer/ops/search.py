"""Greedy search and beam search over any step function.

A step function is `(tokens_BW, cache) -> (log_probs_BWN, cache)`. For each of B inputs it takes
the last token of W hypotheses, and returns the log-probabilities of the next token. Three letters
belong to this file: C candidates for the beam, X numbers in a row, M blocks of a row.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

PAD = 0
# The length at first, in tokens, of a cache that grows.
_FIRST_LENGTH = 16


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
  return roll_out(lambda t, log_probs_BWN: jnp.argmax(log_probs_BWN, axis=-1), step, cache,
                  limits_B, 1, options)


def roll_out(choose, step, cache, limits_B, width, options: SearchOptions) -> Hypotheses:
  """Extends W independent hypotheses of each input by one chosen token at every step.

  Args:
    choose: a function (t, log_probs_BWN) -> tokens_BW that chooses the tokens at position t.
    step, cache, limits_B, options: as in `greedy_search`, with W = `width`.
    width: W.

  Returns:
    `Hypotheses` that are not sorted by score.
  """
  shape = limits_B.shape[0], width

  def advance(carry):
    t, last_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW = carry
    log_probs_BWN, cache = step(last_BW, cache)
    token_BW = choose(t, log_probs_BWN).astype(jnp.int32)
    gain_BW = jnp.take_along_axis(log_probs_BWN, token_BW[:, :, None], axis=-1)[:, :, 0]
    tokens_BWT = tokens_BWT.at[:, :, t].set(jnp.where(done_BW, PAD, token_BW))
    lengths_BW = jnp.where(done_BW, lengths_BW, t + 1)
    log_probs_BW = jnp.where(done_BW, log_probs_BW, log_probs_BW + gain_BW)
    done_BW |= (token_BW == options.end_id) | (t + 1 >= limits_B)[:, None]
    return t + 1, token_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW

  carry = (jnp.int32(0), jnp.full(shape, options.begin_id, jnp.int32), cache,
           jnp.full((*shape, options.max_length), PAD, jnp.int32), jnp.zeros(shape, jnp.int32),
           jnp.zeros(shape, jnp.float32), jnp.broadcast_to((limits_B <= 0)[:, None], shape))
  for length in _cache_lengths(options):
    if options.grow:
      carry = (*carry[:2], options.grow(carry[2], length), *carry[3:])
    carry = jax.lax.while_loop(
        lambda carry, length=length: (carry[0] < length) & ~jnp.all(carry[-1]), advance, carry)
  _, _, _, tokens_BWT, lengths_BW, log_probs_BW, _ = carry
  log_probs_BW = jnp.where(lengths_BW > 0, log_probs_BW, -jnp.inf)
  return Hypotheses(tokens_BWT, lengths_BW, log_probs_BW,
                    log_probs_BW / length_penalty(lengths_BW, options.alpha))


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
  batch = limits_B.shape[0]

  def advance(beams: _Beams) -> _Beams:
    t = beams.t
    last_BW = jnp.where(t == 0, options.begin_id, beams.live_tokens[:, :, jnp.maximum(t - 1, 0)])
    log_probs_BWN, cache = step(last_BW, beams.cache)
    vocabulary = log_probs_BWN.shape[-1]
    totals_BX = (beams.live_log_probs[:, :, None] + log_probs_BWN).reshape(batch, -1)
    # Each hypothesis has one extension by the end token, so at least W of 2W candidates go on.
    totals_BC, where_BC = _top_k(totals_BX, min(2 * beam_size, totals_BX.shape[-1]))
    token_BC = (where_BC % vocabulary).astype(jnp.int32)
    origin_BC = where_BC // vocabulary
    is_end_BC = token_BC == options.end_id

    ending_BW = is_end_BC[:, :beam_size] & jnp.isfinite(totals_BC[:, :beam_size])
    scores_BW = jnp.where(
        ending_BW, totals_BC[:, :beam_size] / length_penalty(t + 1, options.alpha), -jnp.inf)
    ending = Hypotheses(
        _take(beams.live_tokens, origin_BC[:, :beam_size]).at[:, :, t].set(options.end_id),
        jnp.full((batch, beam_size), t + 1, jnp.int32), totals_BC[:, :beam_size], scores_BW)
    ended = best(jax.tree.map(lambda old, new: jnp.concatenate([old, new], axis=1),
                              beams.ended, ending), beam_size)
    ended_count = beams.ended_count + jnp.sum(ending_BW, axis=1)

    live_log_probs, chosen_BW = _top_k(jnp.where(is_end_BC, -jnp.inf, totals_BC), beam_size)
    origin_BW = jnp.take_along_axis(origin_BC, chosen_BW, axis=1)
    live_tokens = _take(beams.live_tokens, origin_BW).at[:, :, t].set(
        jnp.take_along_axis(token_BC, chosen_BW, axis=1))
    if beam_size > 1:
      cache = cache._replace(own=jax.tree.map(lambda leaf: _take(leaf, origin_BW), cache.own))

    # A bound on the scores of live hypotheses: more tokens only lower a log-probability, and
    # the length penalty is largest at the limit.
    bound_B = live_log_probs[:, 0] / length_penalty(limits_B, options.alpha)
    over_B = ((ended_count >= beam_size) | (ended.scores[:, nbest - 1] >= bound_B)
              | (t + 1 >= limits_B))
    live_tokens, live_log_probs, ended, ended_count = _where(
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
  for length in _cache_lengths(options):
    if options.grow:
      beams = beams._replace(cache=options.grow(beams.cache, length))
    beams = jax.lax.while_loop(
        lambda beams, length=length: (beams.t < length) & ~jnp.all(beams.done), advance, beams)

  # Where no hypothesis has ended, the live ones are the result.
  exists_BW = jnp.isfinite(beams.live_log_probs) & (limits_B > 0)[:, None]
  lengths_BW = jnp.where(exists_BW, limits_B[:, None], 0)
  live_scores_BW = beams.live_log_probs / length_penalty(lengths_BW, options.alpha)
  live = Hypotheses(
      jnp.where(exists_BW[:, :, None], beams.live_tokens, PAD), lengths_BW, beams.live_log_probs,
      jnp.where(exists_BW, live_scores_BW, -jnp.inf))
  result = _where(beams.ended_count > 0, beams.ended, live)
  missing_BW = jnp.isneginf(result.scores)
  return result._replace(tokens=jnp.where(missing_BW[:, :, None], PAD, result.tokens),
                         lengths=jnp.where(missing_BW, 0, result.lengths),
                         log_probs=jnp.where(missing_BW, -jnp.inf, result.log_probs))


def _cache_lengths(options):
  """Yields the lengths that the cache grows to, each twice the one before."""
  length = _FIRST_LENGTH
  while options.grow and 2 * length <= options.max_length:
    yield length
    length *= 2
  yield options.max_length


def _top_k(x_BX, count):
  """Returns the `count` largest numbers of each row, descending, and their indices.

  Equal numbers keep their order. Long rows are cut into blocks. The largest numbers are all in
  the `count` blocks with the largest maxima, and the maxima need no copy of the row.

  Without the barriers, XLA sorts the whole row on a CPU where only a slice of the result is
  used. One barrier around both results would crash XLA's compiler under `pmap`.
  """
  rows, width = x_BX.shape
  block = _block_size(width, count)
  if block == 1:
    return tuple(map(jax.lax.optimization_barrier, jax.lax.top_k(x_BX, count)))
  blocks = -(-width // block)
  if blocks * block != width:
    x_BX = jnp.pad(x_BX, ((0, 0), (0, blocks * block - width)), constant_values=-jnp.inf)
  x_BMX = x_BX.reshape(rows, blocks, block)
  _, chosen_BC = _top_k(jnp.max(x_BMX, axis=-1), count)
  # The chosen blocks go back into the order of the row, so that equal numbers keep theirs.
  chosen_BC = jnp.sort(chosen_BC, axis=-1)
  values, where = _top_k(_take(x_BMX, chosen_BC).reshape(rows, -1), count)
  return values, jnp.take_along_axis(chosen_BC, where // block, axis=1) * block + where % block


def _block_size(width, count):
  """Returns the size of the blocks for `_top_k`; 1 where the row is too short for blocks.

  The ideal size gives as many maxima, width / size, as numbers in the chosen blocks, count · size.
  A size that divides the row needs no padding and is preferred.
  """
  ideal = math.sqrt(width / count)
  if ideal < 8:
    return 1
  near = range(math.ceil(ideal / 2), math.floor(ideal * 2) + 1)
  return min(near, key=lambda size: (width % size != 0, abs(math.log(size / ideal))))


def _where(condition_B, yes, no):
  """Returns the rows [b, ...] of the pytree `yes` where the condition is True, else of `no`."""
  return jax.tree.map(
      lambda one, other: jnp.where(condition_B.reshape(-1, *[1] * (one.ndim - 1)), one, other),
      yes, no)


def _take(leaf, origin_BW):
  """Reorders axis 1 of [B, W, ...]: the result at [b, w] is leaf[b, origin[b, w]]."""
  return jnp.take_along_axis(leaf, origin_BW.reshape(*origin_BW.shape, *[1] * (leaf.ndim - 2)),
                             axis=1)


def best(hypotheses: Hypotheses, count) -> Hypotheses:
  """Returns the `count` best hypotheses by descending score; ties keep their order."""
  _, chosen = _top_k(hypotheses.scores, count)
  return jax.tree.map(lambda leaf: _take(leaf, chosen), hypotheses)
