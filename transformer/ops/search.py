"""Common code of all searches: the state of a step function, the `Search` interface, its loop.

A step function is `(tokens_BW, t, cache) -> (log_probs_BWN, cache)`. For each of B inputs it takes
the last token of W hypotheses of t tokens, and returns the log-probabilities of the next token.
The cache is a pytree of `StateArray`s, which the search grows, and reorders with its hypotheses.
A `Search` adds one token per step; between steps, a caller may stop it and keep its state.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp

from transformer.ops.axes import pad_axis
from transformer.ops.selection import gather_beams, top_k

PAD = 0
# Initial length of a growing cache, in tokens.
_FIRST_LENGTH = 16


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['array'],
  meta_fields=['source_axis', 'time_axis', 'slots', 'per_hypothesis'],
)
@dataclasses.dataclass(frozen=True)
class StateArray:
  """An array of a search state. Its first axis is the sentence, B; a scalar is for all sentences.

  Attributes:
    array: the array.
    source_axis: axis of the source positions. It is padded with zeros where sources of different
      lengths share a batch. Axes may be negative; None: no such axis.
    time_axis: axis of the target positions. Its length is 0 at first, and it grows with zeros.
    slots: length of `time_axis` per target position, such as W for a cache that the W hypotheses
      of a sentence share.
    per_hypothesis: whether the array is [B, W, ...] and is reordered with the hypotheses.
  """

  array: jax.Array
  source_axis: int | None = None
  time_axis: int | None = None
  slots: int = 1
  per_hypothesis: bool = False


jax.export.register_pytree_node_serialization(
  StateArray,
  serialized_name=f'{StateArray.__module__}.StateArray',
  serialize_auxdata=lambda data: json.dumps(data).encode(),
  deserialize_auxdata=lambda data: tuple(json.loads(data)),
)


def _is_state_array(leaf: Any) -> bool:
  return isinstance(leaf, StateArray)


def _map(function: Callable, state: Any) -> Any:
  """Maps `function` over the `StateArray`s of a state; other leaves are unchanged."""

  def apply(leaf):
    return function(leaf) if _is_state_array(leaf) else leaf

  return jax.tree.map(apply, state, is_leaf=_is_state_array)


def plain_arrays(state: Any) -> Any:
  """Returns the state with plain arrays instead of `StateArray`s."""
  return _map(lambda leaf: leaf.array, state)


def with_arrays(state: Any, new: Any) -> Any:
  """Returns the state with its arrays replaced by `new`, a pytree of the same structure."""

  def replace(leaf, array):
    return dataclasses.replace(leaf, array=array) if _is_state_array(leaf) else array

  return jax.tree.map(replace, state, new, is_leaf=_is_state_array)


def pad_sources(state: Any, source_length: int) -> Any:
  """Returns the state with source axes padded to `source_length`."""
  return _map(lambda leaf: _with_axis(leaf, leaf.source_axis, source_length), state)


def grow_state(state: Any, length: int) -> Any:
  """Returns the state with capacity for `length` target positions, its contents kept."""
  return _map(lambda leaf: _with_axis(leaf, leaf.time_axis, length * leaf.slots), state)


def reorder_state(state: Any, origin_BW) -> Any:
  """Returns the state in which hypothesis [b, w] continues the earlier hypothesis origin[b, w]."""

  def reorder(leaf):
    if not leaf.per_hypothesis:
      return leaf
    return dataclasses.replace(leaf, array=gather_beams(leaf.array, origin_BW))

  return _map(reorder, state)


def _with_axis(leaf: StateArray, axis: int | None, length: int) -> StateArray:
  """Returns the array with one axis zero-padded to `length`; unchanged if `axis` is None."""
  if axis is None:
    return leaf
  return dataclasses.replace(leaf, array=pad_axis(leaf.array, axis, length))


class Hypotheses(NamedTuple):
  """The W best hypotheses of each input, best first.

  If an input has fewer than W hypotheses, the last ones have length 0, log-probability −inf and
  score −inf.
  """

  tokens: jax.Array  # int32 [B, W, T], EOS included, `PAD` after it
  lengths: jax.Array  # int32 [B, W], number of tokens without padding
  log_probs: jax.Array  # float32 [B, W], natural logarithms, summed over tokens
  scores: jax.Array  # float32 [B, W], log-probability divided by the length penalty


class SearchOptions(NamedTuple):
  """Options of all searches.

  Attributes:
    max_length: T, the length of the returned token arrays, and the maximum limit of an input.
    bos_id: BOS, the input of the first step.
    eos_id: EOS, the token that finishes a hypothesis.
    alpha: exponent of the length penalty in the scores; with 0, a score is the log-probability.
  """

  max_length: int
  bos_id: int
  eos_id: int
  alpha: float = 0.6


class Search(NamedTuple):
  """A search as an initial state and two functions.

  Attributes:
    initial_state: the state before the first token, a named tuple. `t` is the number of tokens,
      `done` [B, ...] is True where the search is done, and `cache` is the cache of the step
      function. `t` and other scalars are the same for all inputs.
    add_token: a function state -> state that adds a token.
    finish: a function state -> `Hypotheses`; it does not read the cache.
    options: the options of the search.
  """

  initial_state: Any
  add_token: Callable
  finish: Callable[[Any], Hypotheses]
  options: SearchOptions


def run_search(search: Search) -> Hypotheses:
  """Adds tokens until the search for every input is done, and returns the hypotheses.

  When the cache is full, it grows to the next of `cache_lengths`: short hypotheses cost less.
  """
  state = search.initial_state
  for length in cache_lengths(search.options.max_length):
    state = extend_to(search, grow_state(state, length), length)
  return search.finish(state)


def extend_to(search: Search, state, t) -> Any:
  """Adds tokens until there are `t`, or until the search for every input is done."""
  return jax.lax.while_loop(
    lambda state: (state.t < t) & ~jnp.all(state.done), search.add_token, state
  )


def cache_lengths(max_length) -> list[int]:
  """Returns the lengths of a growing cache.

  Each length is twice the previous one, but the last is `max_length`, less than four times the
  previous one.
  """
  lengths = []
  length = _FIRST_LENGTH
  while 2 * length <= max_length:
    lengths.append(length)
    length *= 2
  return [*lengths, max_length]


def length_penalty(length, alpha) -> jax.Array:
  """Returns ((5 + n) / 6)^α for n tokens: Wu et al., 2016, equation 14."""
  return ((5.0 + length) / 6.0) ** alpha


def top_hypotheses(hypotheses: Hypotheses, count) -> Hypotheses:
  """Returns the `count` best hypotheses by descending score; ties keep their order."""
  _, indices = top_k(hypotheses.scores, count)
  return jax.tree.map(lambda leaf: gather_beams(leaf, indices), hypotheses)
