"""A language of five tokens for searches: small enough to enumerate, with a long memory."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.ops.search import Cache

BEGIN, END = 1, 2
B, N, MAX_LENGTH, STATES = 3, 5, 7, 97
LIMITS = (7, 3, 5)
ROOMS = []  # What lengths caches were asked to grow to.


class Toy(NamedTuple):
  """What a search over the language is given: its step function, and the rest of its arguments."""

  step: Callable
  cache: Cache
  options: dict


def next_state(state, token, earlier, index):
  """A hash of the whole history, order included: few prefixes share one."""
  return (state * 5 + token * 3 + earlier * 7 + index + 1) % STATES


def tables(seed=0, vocabulary=N):
  """Random log-probabilities of the next token, for each input and state: [B, STATES, N]."""
  logits = np.random.default_rng(seed).normal(size=(B, STATES, vocabulary)) * 1.5
  return np.asarray(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32)))


def forced(table_XN, tokens):
  """The log-probability of a sequence, token by token, in float64."""
  state, total, history = 0, 0.0, (BEGIN, *tokens)
  for index, token in enumerate(tokens):
    state = next_state(state, history[index], history[index // 2], index)
    total += float(table_XN[state, token])
  return total


def toy(table_BXN, batch, width, *, max_length=MAX_LENGTH, alpha=0.6, grows=False) -> Toy:
  """A search's arguments, for so many inputs and hypotheses.

  The cache is the state of each hypothesis and its tokens, and a common scalar; if
  it grows, there is room for no token at first.
  """
  def step(tokens_BW, cache):
    index, (state_BW, history_BWT) = cache.common, cache.own
    chex.assert_shape(index, ())
    history_BWT = history_BWT.at[:, :, index].set(tokens_BW)
    state_BW = next_state(state_BW, tokens_BW, history_BWT[:, :, index // 2], index)
    log_probs = jnp.take_along_axis(table_BXN, state_BW[:, :, None], axis=1)
    return log_probs, Cache((state_BW, history_BWT), index + 1)

  def room(cache, length):
    state_BW, history_BWT = cache.own
    more = length - history_BWT.shape[-1]
    ROOMS.append(length)
    return cache._replace(own=(state_BW, jnp.pad(history_BWT, ((0, 0), (0, 0), (0, more)))))

  cache = Cache((jnp.zeros((batch, width), jnp.int32),
                 jnp.zeros((batch, width, 0 if grows else max_length), jnp.int32)), jnp.int32(0))
  return Toy(step, cache, {'max_length': max_length, 'begin_id': BEGIN, 'end_id': END,
                           'alpha': alpha, 'room': room if grows else None})
