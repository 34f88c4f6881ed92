"""Greedy and beam search over any step function.

A step is `(tokens_BW, cache) -> (log_probs_BWN, cache)`: given the last token of
each of W hypotheses for each of B inputs, it returns the log-probabilities of
the next one. The cache is a `Cache` of any two pytrees.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

PAD = 0
# Tokens that a cache has room for at first, if it can grow.
_FIRST_ROOM = 16


class Cache(NamedTuple):
  """What a step function keeps from one token to the next.

  Attributes:
    own: what belongs to a hypothesis; leaves [B, W, ...], which move with it.
    common: the rest; it stays where it is.
  """

  own: Any
  common: Any


class Hypotheses(NamedTuple):
  """The W best hypotheses of each input, best first.

  Attributes:
    tokens: int32 [B, W, T], the end token included, `PAD` after it.
    lengths: int32 [B, W], tokens before the padding; 0 where there are fewer
      than W hypotheses.
    log_probs: float32 [B, W], summed over tokens, natural logarithm.
    scores: float32 [B, W], log-probability over length penalty. Both are −inf
      where there are fewer than W hypotheses.
  """

  tokens: jax.Array
  lengths: jax.Array
  log_probs: jax.Array
  scores: jax.Array


def length_penalty(length, alpha):
  """((5 + n) / 6)^α: Wu et al., 2016, equation 14; divides a log-probability of n tokens."""
  return ((5.0 + length) / 6.0) ** alpha


def greedy_search(step, cache, limits_B, *, max_length, begin_id, end_id, alpha=0.0,
                  room=None) -> Hypotheses:
  """Takes the likeliest token at every position, to the end token or the limit.

  Args:
    step: as this module describes, called with W = 1.
    cache: the step function's, before the first token.
    limits_B: int32 [B], the most tokens for each input, the end token included;
      an input with limit 0 costs nothing and gets nothing.
    max_length: static bound on the limits, T.
    begin_id: the token that precedes every hypothesis.
    end_id: the token that ends one.
    alpha: exponent of the length penalty in the score.
    room: as in `beam_search`.

  Returns:
    `Hypotheses` with W = 1.
  """
  return roll_out(lambda t, log_probs_BWN: jnp.argmax(log_probs_BWN, axis=-1), step, cache,
                  limits_B, width=1, max_length=max_length, begin_id=begin_id, end_id=end_id,
                  alpha=alpha, room=room)


def roll_out(choose, step, cache, limits_B, *, width, max_length, begin_id, end_id, alpha=0.0,
             room=None) -> Hypotheses:
  """Extends W hypotheses of each input by one chosen token a step, each for itself.

  Args:
    choose: a function (t, log_probs_BWN) -> tokens_BW, the tokens at position t.
    width: W, with which `step` is called.
    step, cache, limits_B, max_length, begin_id, end_id, alpha, room: as in
      `greedy_search`.

  Returns:
    `Hypotheses` in the order of their slots, whatever their scores.
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
    done_BW |= (token_BW == end_id) | (t + 1 >= limits_B)[:, None]
    return t + 1, token_BW, cache, tokens_BWT, lengths_BW, log_probs_BW, done_BW

  carry = (jnp.int32(0), jnp.full(shape, begin_id, jnp.int32), cache,
           jnp.full((*shape, max_length), PAD, jnp.int32), jnp.zeros(shape, jnp.int32),
           jnp.zeros(shape, jnp.float32), jnp.broadcast_to((limits_B <= 0)[:, None], shape))
  for length in _stages(max_length) if room else (max_length,):
    if room:
      carry = (*carry[:2], room(carry[2], length), *carry[3:])
    carry = jax.lax.while_loop(
        lambda carry, length=length: (carry[0] < length) & ~jnp.all(carry[-1]), advance, carry)
  _, _, _, tokens_BWT, lengths_BW, log_probs_BW, _ = carry
  log_probs_BW = jnp.where(lengths_BW > 0, log_probs_BW, -jnp.inf)
  return Hypotheses(tokens_BWT, lengths_BW, log_probs_BW,
                    log_probs_BW / length_penalty(lengths_BW, alpha))


class _Beams(NamedTuple):
  """The state of a beam search after t tokens."""

  t: jax.Array
  live_tokens: jax.Array  # [B, W, T]
  live_log_probs: jax.Array  # [B, W], descending; −inf is no hypothesis
  cache: Cache
  ended: Hypotheses  # by score, descending
  ended_count: jax.Array  # [B], how many have ended so far, kept or not
  done: jax.Array  # [B]


def beam_search(step, cache, limits_B, *, beam_size, max_length, begin_id, end_id,
                alpha=0.6, room=None, nbest=1) -> Hypotheses:
  """Keeps the W likeliest hypotheses at every length (section 6.1; Wu et al., 2016, section 7).

  A hypothesis ends only when its end token is among the W best extensions of its
  step. The search for an input is over when W hypotheses have ended, when the
  best live one could no longer overtake the best ended one, or the last of so many
  best, or at the limit; if none has ended by then, the live ones are returned as
  they are. So a beam of one is greedy search. Once its search is over, nothing about
  an input changes, however long its neighbours take.

  Args:
    step: as this module describes.
    cache: the step function's, before the first token.
    limits_B: int32 [B], the most tokens for each input, the end token included;
      an input with limit 0 costs nothing and gets nothing.
    beam_size: W.
    max_length: static bound on the limits, T.
    begin_id: the token that precedes every hypothesis.
    end_id: the token that ends one.
    alpha: exponent of the length penalty, at least 0; 0 compares plain
      log-probabilities.
    room: a function (cache, length) -> cache that makes room for so many tokens,
      keeping what the cache holds. The search then begins with little room and
      doubles it as it needs to, so that short hypotheses do not pay for what long
      ones would take. None: the cache has room for `max_length`.
    nbest: how many ended hypotheses no live one may overtake any more, at most W.

  Returns:
    `Hypotheses`, by score.
  """
  batch = limits_B.shape[0]

  def advance(beams: _Beams) -> _Beams:
    t = beams.t
    last_BW = jnp.where(t == 0, begin_id, beams.live_tokens[:, :, jnp.maximum(t - 1, 0)])
    log_probs_BWN, cache = step(last_BW, beams.cache)
    vocabulary = log_probs_BWN.shape[-1]
    totals_BX = (beams.live_log_probs[:, :, None] + log_probs_BWN).reshape(batch, -1)
    # One extension in a hypothesis is its end, so 2W hold at least W that go on.
    totals_BC, where_BC = _top_k(totals_BX, min(2 * beam_size, totals_BX.shape[-1]))
    token_BC = (where_BC % vocabulary).astype(jnp.int32)
    origin_BC = where_BC // vocabulary
    is_end_BC = token_BC == end_id

    ending_BW = is_end_BC[:, :beam_size] & jnp.isfinite(totals_BC[:, :beam_size])
    scores_BW = jnp.where(ending_BW, totals_BC[:, :beam_size] / length_penalty(t + 1, alpha),
                          -jnp.inf)
    ending = Hypotheses(
        _take(beams.live_tokens, origin_BC[:, :beam_size]).at[:, :, t].set(end_id),
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

    # More tokens can only lower a log-probability, and no penalty is larger than the limit's.
    reach_B = live_log_probs[:, 0] / length_penalty(limits_B, alpha)
    over_B = ((ended_count >= beam_size) | (ended.scores[:, nbest - 1] >= reach_B)
              | (t + 1 >= limits_B) | jnp.isneginf(live_log_probs[:, 0]))

    def unless_done(old, new):
      return jnp.where(beams.done.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    return _Beams(
        t + 1, unless_done(beams.live_tokens, live_tokens),
        unless_done(beams.live_log_probs, live_log_probs), cache,
        jax.tree.map(unless_done, beams.ended, ended),
        unless_done(beams.ended_count, ended_count), beams.done | over_B)

  none = jnp.full((batch, beam_size), -jnp.inf, jnp.float32)
  no_tokens = jnp.full((batch, beam_size, max_length), PAD, jnp.int32)
  no_lengths = jnp.zeros((batch, beam_size), jnp.int32)
  beams = _Beams(
      jnp.int32(0), no_tokens, none.at[:, 0].set(0.0), cache,
      Hypotheses(no_tokens, no_lengths, none, none), jnp.zeros(batch, jnp.int32), limits_B <= 0)
  for length in _stages(max_length) if room else (max_length,):
    if room:
      beams = beams._replace(cache=room(beams.cache, length))
    beams = jax.lax.while_loop(
        lambda beams, length=length: (beams.t < length) & ~jnp.all(beams.done), advance, beams)

  # Where nothing has ended, what was alive at the limit is the answer.
  exists_BW = jnp.isfinite(beams.live_log_probs) & (limits_B > 0)[:, None]
  lengths_BW = jnp.where(exists_BW, limits_B[:, None], 0)
  live = Hypotheses(
      jnp.where(exists_BW[:, :, None], beams.live_tokens, PAD), lengths_BW, beams.live_log_probs,
      jnp.where(exists_BW, beams.live_log_probs / length_penalty(lengths_BW, alpha), -jnp.inf))
  any_B = beams.ended_count > 0
  result = jax.tree.map(
      lambda ended, alive: jnp.where(any_B.reshape(-1, *[1] * (ended.ndim - 1)), ended, alive),
      beams.ended, live)
  missing_BW = jnp.isneginf(result.scores)
  return result._replace(tokens=jnp.where(missing_BW[:, :, None], PAD, result.tokens),
                         lengths=jnp.where(missing_BW, 0, result.lengths),
                         log_probs=jnp.where(missing_BW, -jnp.inf, result.log_probs))


def _stages(max_length):
  """The lengths for which a cache gets room, one after the other: twice as much each time."""
  length = _FIRST_ROOM
  while 2 * length <= max_length:
    yield length
    length *= 2
  yield max_length


def _top_k(x_BX, count):
  """The `count` largest of each row, descending, and where they are; of equals the first.

  Long rows are cut into blocks: the largest are all in the `count` blocks with
  the largest maxima, and the maxima come with one pass that keeps nothing.

  The barriers keep XLA from making a sort of the whole row of it, which it does
  on a CPU where only a slice of the answer is used. A single one around both
  would crash its compiler under `pmap`.
  """
  rows, width = x_BX.shape
  block = _block_size(width, count)
  if block == 1:
    values, where = jax.lax.top_k(x_BX, count)
    return jax.lax.optimization_barrier(values), jax.lax.optimization_barrier(where)
  blocks = -(-width // block)
  if blocks * block != width:
    x_BX = jnp.pad(x_BX, ((0, 0), (0, blocks * block - width)), constant_values=-jnp.inf)
  x_BMX = x_BX.reshape(rows, blocks, block)
  _, chosen_BC = _top_k(jnp.max(x_BMX, axis=-1), count)
  # In their order, so that of equals the first is the first in the row.
  chosen_BC = jnp.sort(chosen_BC, axis=-1)
  values, where = _top_k(_take(x_BMX, chosen_BC).reshape(rows, -1), count)
  return values, jnp.take_along_axis(chosen_BC, where // block, axis=1) * block + where % block


def _block_size(width, count):
  """A size that makes blocks and their elements about equally many to choose from; 1 is none.

  One that divides the row, if there is one, saves filling it up.
  """
  ideal = math.sqrt(width / count)
  if ideal < 8:
    return 1
  near = range(math.ceil(ideal / 2), math.floor(ideal * 2) + 1)
  return min(near, key=lambda size: (width % size != 0, abs(math.log(size / ideal))))


def _take(leaf, origin_BW):
  """Rearranges axis 1 of [B, W, ...] so that slot w holds what was at origin[b, w]."""
  return jnp.take_along_axis(leaf, origin_BW.reshape(*origin_BW.shape, *[1] * (leaf.ndim - 2)),
                             axis=1)


def best(hypotheses: Hypotheses, count) -> Hypotheses:
  """The `count` best by score, descending; of equals the first."""
  _, chosen = _top_k(hypotheses.scores, count)
  return jax.tree.map(lambda leaf: _take(leaf, chosen), hypotheses)
