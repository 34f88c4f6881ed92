"""Beam search over any step function, as `ops.search` describes it.

The letter C belongs to this file: candidates for the beam.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.search import (
  PAD,
  Cache,
  Hypotheses,
  Search,
  SearchOptions,
  best,
  length_penalty,
)
from transformer.ops.selection import take, top_k, top_sums, where_rows


class Extensions(NamedTuple):
  """W hypotheses of each input, each extended by a token."""

  log_probs: jax.Array  # [B, W], with the new token; −inf where there is no hypothesis
  origin: jax.Array  # int32 [B, W], the index of the hypothesis that was extended
  token: jax.Array  # int32 [B, W], the new token


class Choice(NamedTuple):
  """The choice of a beam at one step."""

  best: Extensions  # the W best; those with the end token end
  live: Extensions  # the W best without the end token, which go on
  state: Any  # of the `live` extensions


class Policy(NamedTuple):
  """The rule by which a beam is chosen.

  Attributes:
    choose: a function (log_probs_BWN of the next token, live_log_probs_BW so far, state) ->
      `Choice`.
    state: a pytree with the state of the hypotheses before the first token, leaves [B, W, ...].
    preference: a function state -> int32 [B, W], at least 0. Where no hypothesis has ended, the
      live ones of the largest preference are the result. None takes all, which must be sorted.
  """

  choose: Callable[..., Choice]
  state: Any = ()
  preference: Callable[[Any], jax.Array] | None = None


class Beams(NamedTuple):
  """The state of a beam search after t tokens."""

  t: jax.Array
  live_tokens: jax.Array  # [B, W, T]
  live_log_probs: jax.Array  # [B, W]; −inf where there is no hypothesis
  state: Any  # of the policy
  cache: Cache
  ended: Hypotheses  # the W best, by descending score
  ended_count: jax.Array  # [B], the number of all that have ended
  done: jax.Array  # [B], whether the search for an input is over


def beam_search(
  step, cache, limits_B, options: SearchOptions, *, beam_size, nbest=1, policy: Policy | None = None
) -> Search:
  """Keeps the W likeliest hypotheses at every length (section 6.1; Wu et al., 2016, section 7).

  A hypothesis ends only when its end token is among the W best extensions of its step, so
  that a beam of one is greedy search. The search for an input is over

  - when W hypotheses have ended,
  - when no live hypothesis can overtake the `nbest`-th best ended one, or
  - at the input's limit. If none has ended by then, the live ones are the result.

  After that, the input's hypotheses stay as they are while the search for other inputs goes on.

  Args:
    step: a step function, as `ops.search` describes it, called with W = `beam_size`.
    cache, limits_B, options: as in `greedy_search`.
    beam_size: W.
    nbest: number of best hypotheses, at most W, that must be final before the search may end
      early.
    policy: the rule by which the beam is chosen at every step; None takes the likeliest.

  Returns:
    The search, whose `Hypotheses` are sorted by score.
  """
  if not isinstance(cache, Cache):
    raise ValueError(
      f'the cache must be a Cache, Cache((), ()) if there is no state; got {type(cache).__name__}'
    )
  limits_B = jnp.minimum(limits_B, options.max_length)
  batch, policy = limits_B.shape[0], policy or _likeliest(beam_size, options.end_id)

  def advance(beams: Beams) -> Beams:
    t = beams.t
    last_BW = jnp.where(t == 0, options.begin_id, beams.live_tokens[:, :, jnp.maximum(t - 1, 0)])
    log_probs_BWN, cache = step(last_BW, beams.cache)
    leading, live, state = policy.choose(log_probs_BWN, beams.live_log_probs, beams.state)

    ending_BW = (leading.token == options.end_id) & jnp.isfinite(leading.log_probs)
    scores_BW = jnp.where(
      ending_BW, leading.log_probs / length_penalty(t + 1, options.alpha), -jnp.inf
    )
    ending = Hypotheses(
      take(beams.live_tokens, leading.origin).at[:, :, t].set(options.end_id),
      jnp.full((batch, beam_size), t + 1, jnp.int32),
      leading.log_probs,
      scores_BW,
    )
    ended = best(
      jax.tree.map(lambda old, new: jnp.concatenate([old, new], axis=1), beams.ended, ending),
      beam_size,
    )
    ended_count = beams.ended_count + jnp.sum(ending_BW, axis=1, dtype=jnp.int32)

    live_tokens = take(beams.live_tokens, live.origin).at[:, :, t].set(live.token)
    if beam_size > 1:
      cache = cache._replace(own=jax.tree.map(lambda leaf: take(leaf, live.origin), cache.own))

    # A bound on the scores of live hypotheses: more tokens only lower a log-probability, and
    # the length penalty is largest at the limit.
    bound_B = jnp.max(live.log_probs, axis=1) / length_penalty(limits_B, options.alpha)
    over_B = (
      (ended_count >= beam_size) | (ended.scores[:, nbest - 1] >= bound_B) | (t + 1 >= limits_B)
    )
    live_tokens, live_log_probs, state, ended, ended_count = where_rows(
      beams.done,
      (beams.live_tokens, beams.live_log_probs, beams.state, beams.ended, beams.ended_count),
      (live_tokens, live.log_probs, state, ended, ended_count),
    )
    return Beams(
      t + 1, live_tokens, live_log_probs, state, cache, ended, ended_count, beams.done | over_B
    )

  none = jnp.full((batch, beam_size), -jnp.inf, jnp.float32)
  no_tokens = jnp.full((batch, beam_size, options.max_length), PAD, jnp.int32)
  no_lengths = jnp.zeros((batch, beam_size), jnp.int32)
  beams = Beams(
    jnp.int32(0),
    no_tokens,
    none.at[:, 0].set(0.0),
    policy.state,
    cache,
    Hypotheses(no_tokens, no_lengths, none, none),
    jnp.zeros(batch, jnp.int32),
    limits_B <= 0,
  )
  return Search(beams, advance, lambda beams: _result(beams, policy, limits_B, options), options)


def _likeliest(beam_size, end_id) -> Policy:
  def choose(log_probs_BWN, live_log_probs_BW, state):
    # Each hypothesis has one extension by the end token, so at least W of 2W candidates go on.
    candidates = min(2 * beam_size, log_probs_BWN[0].size)
    totals_BC, origin_BC, token_BC = top_sums(log_probs_BWN, live_log_probs_BW, candidates)
    live_BW, chosen_BW = top_k(jnp.where(token_BC == end_id, -jnp.inf, totals_BC), beam_size)
    return Choice(
      Extensions(*(leaf[:, :beam_size] for leaf in (totals_BC, origin_BC, token_BC))),
      Extensions(live_BW, take(origin_BC, chosen_BW), take(token_BC, chosen_BW)),
      state,
    )

  return Policy(choose)


def _result(beams: Beams, policy: Policy, limits_B, options: SearchOptions) -> Hypotheses:
  """Returns the hypotheses that have ended; where there are none, the live ones."""
  exists_BW = jnp.isfinite(beams.live_log_probs) & (limits_B > 0)[:, None]
  if policy.preference:
    preference_BW = jnp.where(exists_BW, policy.preference(beams.state), -1)
    exists_BW &= preference_BW == jnp.max(preference_BW, axis=1, keepdims=True)
  lengths_BW = jnp.broadcast_to(limits_B[:, None], exists_BW.shape)
  scores_BW = beams.live_log_probs / length_penalty(lengths_BW, options.alpha)
  live = Hypotheses(
    beams.live_tokens, lengths_BW, beams.live_log_probs, jnp.where(exists_BW, scores_BW, -jnp.inf)
  )
  if policy.preference:
    live = best(live, live.scores.shape[1])
  result = where_rows(beams.ended_count > 0, beams.ended, live)
  missing_BW = jnp.isneginf(result.scores)
  return result._replace(
    tokens=jnp.where(missing_BW[:, :, None], PAD, result.tokens),
    lengths=jnp.where(missing_BW, 0, result.lengths),
    log_probs=jnp.where(missing_BW, -jnp.inf, result.log_probs),
  )
