"""Steering of any search: hypotheses that begin with given tokens, and tokens that are forbidden.

Steering wraps a step function, as `ops.search` describes it, and leaves the search as it is.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.ops.search import PAD, Cache


class Automaton(NamedTuple):
  """A finite automaton that reads hypotheses and forbids tokens; Z numbers its states.

  Attributes:
    next_ZN: int32, the state after each state and token. The search begins in state 0.
    forbidden_ZN: boolean, the tokens that must not follow in each state.
  """

  next_ZN: jax.Array
  forbidden_ZN: jax.Array


class Steering(NamedTuple):
  """What hypotheses must begin with, and what they must not hold.

  Attributes:
    prefix_BP: int32, the first tokens of each input's hypotheses, `PAD` after them. P may be 0.
    automaton: forbids tokens after the prefix; None forbids none.
  """

  prefix_BP: jax.Array
  automaton: Automaton | None = None


class Steered(NamedTuple):
  """The arguments of a search that is steered: as in `greedy_search` and `SearchOptions`."""

  step: Callable
  cache: Cache
  grow: Callable[[Cache, int], Cache] | None


def steer(step, cache: Cache, grow, steering: Steering, beams: int) -> Steered:
  """Returns a step function, its cache and `grow` that obey the steering.

  Tokens that are not allowed get −inf. The others keep the log-probabilities of the model, so
  scores stay comparable with those of a search without steering.

  Args:
    step: a step function.
    cache: its cache before the first token.
    grow: as in `SearchOptions`.
    steering: as `Steering` describes.
    beams: number of hypotheses of each input, W.
  """
  prefix_BP, automaton = steering
  length = prefix_BP.shape[1]
  state_BW = jnp.zeros((prefix_BP.shape[0], beams), jnp.int32)

  def steered_step(tokens_BW, cache):
    (own, state_BW), (common, t) = cache
    log_probs_BWN, inner = step(tokens_BW, Cache(own, common))
    allowed_BWN = log_probs_BWN
    if automaton is not None:
      # The token before the first one is the begin token, which is no part of the text.
      state_BW = jnp.where(t > 0, automaton.next_ZN[state_BW, tokens_BW], state_BW)
      allowed_BWN = jnp.where(automaton.forbidden_ZN[state_BW], -jnp.inf, log_probs_BWN)
    if length:
      wanted_B = jnp.where(t < length, prefix_BP[:, jnp.minimum(t, length - 1)], PAD)
      is_wanted_BN = jnp.arange(log_probs_BWN.shape[-1])[None] == wanted_B[:, None]
      begun_BWN = jnp.where(is_wanted_BN[:, None], log_probs_BWN, -jnp.inf)
      allowed_BWN = jnp.where((wanted_B == PAD)[:, None, None], allowed_BWN, begun_BWN)
    return allowed_BWN, Cache((inner.own, state_BW), (inner.common, t + 1))

  def steered_grow(cache, length):
    (own, state_BW), (common, t) = cache
    inner = grow(Cache(own, common), length)
    return Cache((inner.own, state_BW), (inner.common, t))

  return Steered(steered_step, Cache((cache.own, state_BW), (cache.common, jnp.int32(0))),
                 steered_grow if grow else None)
