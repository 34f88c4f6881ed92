"""The loop of a search, as a whole or in parts, over a cache that grows with the hypotheses."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# The length at first, in tokens, of a cache that grows.
_FIRST_LENGTH = 16


class Search(NamedTuple):
  """A search in three parts.

  Attributes:
    start: the state before the first token, a named tuple. Its `t` is the number of tokens so
      far, `done` [B, ...] says whether the search is over, and `cache` is that of the step
      function. `t` and other scalars are the same for all inputs.
    advance: a function state -> state that adds a token.
    finish: a function state -> `Hypotheses`, which does not read the cache.
  """

  start: Any
  advance: Callable[[Any], Any]
  finish: Callable[[Any], Any]


def run_search(search: Search, options):
  """Adds token after token until the search for every input is over, and finishes.

  A cache that grows begins short and doubles when it is full. A search that ends before that
  does not pay for the growth: on a CPU, copying the cache takes as long as several tokens.

  Args:
    search: the search; its cache has length 0 if it grows.
    options: `SearchOptions`; its `grow` and `max_length` are used.

  Returns:
    `Hypotheses`.
  """
  def loop(state, lengths):
    length, *longer = lengths
    state = advance_until(search, grown(state, length, options), length)
    if not longer:
      return without_cache(state)
    return jax.lax.cond(jnp.all(state.done), without_cache,
                        lambda state: loop(state, longer), state)

  def without_cache(state):
    return state._replace(cache=None)

  lengths = cache_lengths(options.max_length) if options.grow else [options.max_length]
  return search.finish(loop(search.start, lengths))


def advance_until(search: Search, state, t):
  """Adds tokens until there are `t` of them, or the search for every input is over."""
  return jax.lax.while_loop(lambda state: (state.t < t) & ~jnp.all(state.done), search.advance,
                            state)


def grown(state, length, options):
  """Returns the state with a cache of `length` tokens, if the cache grows at all."""
  return state._replace(cache=options.grow(state.cache, length)) if options.grow else state


def cache_lengths(max_length) -> list[int]:
  """Returns the lengths that a cache grows to, each twice the one before; the last is the whole."""
  lengths = [_FIRST_LENGTH]
  while 2 * lengths[-1] <= max_length:
    lengths.append(2 * lengths[-1])
  return [*lengths[:-1], max_length]
