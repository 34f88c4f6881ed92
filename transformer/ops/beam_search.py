"""Beam search over any step function; `ops.search` describes step functions.

In this file only, C stands for candidates for the beam.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.search import (
  PAD,
  Hypotheses,
  Search,
  SearchOptions,
  length_penalty,
  reorder_state,
  top_hypotheses,
)
from transformer.ops.selection import gather_beams, top_k, top_sums, where_rows


class Extensions(NamedTuple):
  """W hypotheses of each input, each extended by one token."""

  log_probs: jax.Array  # [B, W], new token included; −inf where there is no hypothesis
  origin: jax.Array  # int32 [B, W], index of the extended hypothesis
  token: jax.Array  # int32 [B, W], the new token


class Choice(NamedTuple):
  """The beam selected at one step."""

  best: Extensions  # the W best; those with EOS are finished
  live: Extensions  # the W best without EOS, which the search continues
  state: Any  # policy state of the `live` extensions


class Policy(NamedTuple):
  """The rule that selects the beam at each step.

  Attributes:
    choose: a function (log_probs_BWN of the next token, live_log_probs_BW so far, state) ->
      `Choice`.
    state: a pytree, the state of the hypotheses before the first token, leaves [B, W, ...].
    preference: a function state -> int32 [B, W], at least 0. If no hypothesis of an input has
      finished, the result is the live ones with the largest preference. None: all live ones.
  """

  choose: Callable[..., Choice]
  state: Any = ()
  preference: Callable | None = None


class BeamSearchState(NamedTuple):
  """The state of a beam search after t tokens."""

  t: jax.Array
  live_tokens: jax.Array  # [B, W, T]
  live_log_probs: jax.Array  # [B, W]; −inf where there is no hypothesis
  state: Any  # of the policy
  finished: Hypotheses  # the W best finished ones, by descending score
  cache: Any
  done: jax.Array  # [B], whether the search for an input is done


def beam_search(
  step,
  cache,
  limits_B,
  options: SearchOptions,
  *,
  beam_size,
  nbest=1,
  policy: Policy | None = None,
) -> Search:
  """Keeps the W most probable hypotheses of each length (section 6.1; Wu et al., 2016, section 7).

  A hypothesis finishes only when EOS is among the W best extensions of its step, so that a beam of
  one is greedy search. The search for an input is done

  - when W hypotheses have finished,
  - when no live hypothesis can overtake the `nbest`-th best finished one, or
  - at the limit of the input. If none has finished by then, the result is the live hypotheses.

  The hypotheses of this input then stay unchanged while the search for other inputs continues.

  Args:
    step: a step function (see `ops.search`), called with W = `beam_size`. Without a policy, its
      log-probabilities may be the pair that `ops.selection.log_softmax_terms` returns.
    cache, limits_B, options: as in `greedy_search`.
    beam_size: W.
    nbest: number of best hypotheses, at most W, that must be final before early stopping.
    policy: the rule that selects the beam at each step; None selects the most probable.

  Returns:
    The search, whose `Hypotheses` are sorted by score.
  """
  limits_B = jnp.minimum(limits_B, options.max_length)
  policy = policy or _likeliest(beam_size, options.eos_id)

  def add_token(beams: BeamSearchState) -> BeamSearchState:
    t = beams.t
    last_BW = jnp.where(
      t == 0, options.bos_id, beams.live_tokens[:, :, jnp.maximum(t - 1, 0)]
    )
    log_probs, cache = step(last_BW, t, beams.cache)
    leading, live, state = policy.choose(log_probs, beams.live_log_probs, beams.state)
    cache = reorder_state(cache, live.origin)
    live_tokens = (
      gather_beams(beams.live_tokens, live.origin).at[:, :, t].set(live.token)
    )
    finished = _merge_finished(beams, leading, options)
    # Upper bound on the scores of live hypotheses: more tokens only lower a log-probability, and
    # the length penalty is largest at the limit.
    bound_B = jnp.max(live.log_probs, axis=1) / length_penalty(limits_B, options.alpha)
    done_B = (
      _exists(finished)[:, -1]
      | (finished.scores[:, nbest - 1] >= bound_B)
      | (t + 1 >= limits_B)
    )
    new = live_tokens, live.log_probs, state, finished
    updated = where_rows(
      beams.done,
      (beams.live_tokens, beams.live_log_probs, beams.state, beams.finished),
      new,
    )
    return BeamSearchState(t + 1, *updated, cache, beams.done | done_B)

  shape = len(limits_B), beam_size
  none_BW = jnp.full(shape, -jnp.inf, jnp.float32)
  no_tokens_BWT = jnp.full((*shape, options.max_length), PAD, jnp.int32)
  initial_state = BeamSearchState(
    jnp.int32(0),
    no_tokens_BWT,
    none_BW.at[:, 0].set(0.0),
    policy.state,
    Hypotheses(no_tokens_BWT, jnp.zeros(shape, jnp.int32), none_BW, none_BW),
    cache,
    limits_B <= 0,
  )
  return Search(
    initial_state,
    add_token,
    lambda beams: _result(beams, policy, limits_B, options),
    options,
  )


def _merge_finished(
  beams: BeamSearchState, leading: Extensions, options: SearchOptions
) -> Hypotheses:
  """Returns the W best finished hypotheses, those that finish at this step included."""
  t = beams.t
  tokens_BWT = (
    gather_beams(beams.live_tokens, leading.origin).at[:, :, t].set(options.eos_id)
  )
  ends_BW = (leading.token == options.eos_id) & jnp.isfinite(leading.log_probs)
  scores_BW = leading.log_probs / length_penalty(t + 1, options.alpha)
  ending = Hypotheses(
    tokens_BWT,
    jnp.full_like(leading.token, t + 1),
    leading.log_probs,
    jnp.where(ends_BW, scores_BW, -jnp.inf),
  )
  candidates = jax.tree.map(
    lambda *leaves: jnp.concatenate(leaves, axis=1), beams.finished, ending
  )
  return top_hypotheses(candidates, scores_BW.shape[1])


def _exists(hypotheses: Hypotheses) -> jax.Array:
  return hypotheses.scores > -jnp.inf


def _likeliest(beam_size, eos_id) -> Policy:
  def choose(log_probs, live_log_probs_BW, state):
    x_BWN, terms = log_probs if isinstance(log_probs, tuple) else (log_probs, [])
    # Each hypothesis has one extension by EOS, so at least W of 2W candidates stay live.
    candidates = min(2 * beam_size, x_BWN[0].size)
    totals_BC, origin_BC, token_BC = top_sums(
      x_BWN, [*terms, live_log_probs_BW], candidates
    )
    live_BW, chosen_BW = top_k(
      jnp.where(token_BC == eos_id, -jnp.inf, totals_BC), beam_size
    )
    return Choice(
      Extensions(*(leaf[:, :beam_size] for leaf in (totals_BC, origin_BC, token_BC))),
      Extensions(
        live_BW, gather_beams(origin_BC, chosen_BW), gather_beams(token_BC, chosen_BW)
      ),
      state,
    )

  return Policy(choose)


def _result(
  beams: BeamSearchState, policy: Policy, limits_B, options: SearchOptions
) -> Hypotheses:
  """Returns the finished hypotheses; for inputs without any, the live ones."""
  exists_BW = jnp.isfinite(beams.live_log_probs) & (limits_B > 0)[:, None]
  if policy.preference:
    preference_BW = jnp.where(exists_BW, policy.preference(beams.state), -1)
    exists_BW &= preference_BW == jnp.max(preference_BW, axis=1, keepdims=True)
  lengths_BW = jnp.broadcast_to(limits_B[:, None], exists_BW.shape)
  scores_BW = beams.live_log_probs / length_penalty(lengths_BW, options.alpha)
  scores_BW = jnp.where(exists_BW, scores_BW, -jnp.inf)
  live = Hypotheses(beams.live_tokens, lengths_BW, beams.live_log_probs, scores_BW)
  live = top_hypotheses(live, scores_BW.shape[1])
  result = where_rows(_exists(beams.finished)[:, 0], beams.finished, live)
  exists_BW = _exists(result)
  return Hypotheses(
    jnp.where(exists_BW[:, :, None], result.tokens, PAD),
    jnp.where(exists_BW, result.lengths, 0),
    jnp.where(exists_BW, result.log_probs, -jnp.inf),
    result.scores,
  )
