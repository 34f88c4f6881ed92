"""A toy language of five tokens for searches; each token depends on all earlier ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.ops.search import SearchOptions, StateArray, plain_arrays, with_arrays

BEGIN, END = 1, 2
B, N, MAX_LENGTH, STATES = 3, 5, 7, 97
LIMITS = (7, 3, 5)


class Toy(NamedTuple):
  """The arguments of a search over the language."""

  step: Callable
  cache: Any
  options: SearchOptions


def next_state(state, token, earlier, index):
  """Returns a hash of all earlier tokens and their order, which few prefixes share."""
  return (state * 5 + token * 3 + earlier * 7 + index + 1) % STATES


def tables(seed=0, vocabulary=N):
  """Returns random log-probabilities of the next token, [B, STATES, N]."""
  logits = np.random.default_rng(seed).normal(size=(B, STATES, vocabulary)) * 1.5
  return np.asarray(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32)))


def forced(table_XN, tokens):
  """Returns the log-probability of a sequence, summed in float64."""
  state, total, history = 0, 0.0, (BEGIN, *tokens)
  for index, token in enumerate(tokens):
    state = next_state(state, history[index], history[index // 2], index)
    total += float(table_XN[state, token])
  return total


def toy(
  table_BXN, batch, width, *, max_length=MAX_LENGTH, alpha=0.6, grows=False
) -> Toy:
  """Returns the arguments of a search with `batch` inputs and `width` hypotheses of each.

  The cache holds the state and the tokens of each hypothesis. A cache that grows starts
  without capacity for any token.
  """

  def step(tokens_BW, t, cache):
    state_BW, history_BWT = plain_arrays(cache)
    history_BWT = history_BWT.at[:, :, t].set(tokens_BW)
    state_BW = next_state(state_BW, tokens_BW, history_BWT[:, :, t // 2], t)
    log_probs = jnp.take_along_axis(table_BXN, state_BW[:, :, None], axis=1)
    return log_probs, with_arrays(cache, (state_BW, history_BWT))

  state_BW = jnp.zeros((batch, width), jnp.int32)
  history_BWT = jnp.zeros((batch, width, 0 if grows else max_length), jnp.int32)
  cache = (
    StateArray(state_BW, per_hypothesis=True),
    StateArray(history_BWT, time_axis=2 if grows else None, per_hypothesis=True),
  )
  return Toy(step, cache, SearchOptions(max_length, BEGIN, END, alpha))


def words(result, b, w):
  """Returns the tokens of hypothesis `w` of input `b`, as a tuple."""
  return tuple(result.tokens[b, w, : result.lengths[b, w]].tolist())


def contains(tokens, phrases, continues_N):
  """Returns whether tokens contain phrases as whole words, equal ones as often as there are.

  A phrase does not count where a token that continues its last word follows.
  """

  def count(phrase):
    result, place = 0, 0
    while place + len(phrase) <= len(tokens):
      after = place + len(phrase)
      whole = tuple(tokens[place:after]) == phrase and (
        after == len(tokens) or not continues_N[tokens[after]]
      )
      result, place = result + whole, after if whole else place + 1
    return result

  return all(count(phrase) >= phrases.count(phrase) for phrase in phrases if phrase)
