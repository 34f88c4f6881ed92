"""What all searches share: the state of a step function, the parts of a search, and its loop.

A step function is `(tokens_BW, t, cache) -> (log_probs_BWN, cache)`. For each of B inputs it takes
the last token of W hypotheses of t tokens, and returns the log-probabilities of the next token.
The cache is a pytree of `StateArray`s, which the search grows, and reorders with its hypotheses.
A `Search` adds token after token; between two of them, a caller may stop and keep its state.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp

from transformer.ops.axes import padded_axis
from transformer.ops.selection import take, top_k

PAD = 0
# The length at first, in tokens, of a cache that grows.
_FIRST_LENGTH = 16


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['array'],
  meta_fields=['source_axis', 'time_axis', 'slots', 'by_hypothesis'],
)
@dataclasses.dataclass(frozen=True)
class StateArray:
  """An array of a search's state. Its first axis is the sentence, B; scalars are for all.

  Attributes:
    array: the array.
    source_axis: the axis of the source's positions, which is padded with zeros where sources of
      several lengths share a batch. Axes may be negative; None is no such axis.
    time_axis: the axis of the target's positions, which grows with zeros: it is empty at first.
    slots: length of `time_axis` for each target position, such as W for a cache that the W
      hypotheses of a sentence share.
    by_hypothesis: whether the array is [B, W, ...] and is reordered with the hypotheses.
  """

  array: jax.Array
  source_axis: int | None = None
  time_axis: int | None = None
  slots: int = 1
  by_hypothesis: bool = False


jax.export.register_pytree_node_serialization(
  StateArray,
  serialized_name=f'{StateArray.__module__}.StateArray',
  serialize_auxdata=lambda data: json.dumps(data).encode(),
  deserialize_auxdata=lambda data: tuple(json.loads(data)),
)


def _is_state_array(leaf: Any) -> bool:
  return isinstance(leaf, StateArray)


def _map(function: Callable, state: Any) -> Any:
  """Maps the `StateArray`s of a state; other leaves stay."""

  def apply(leaf):
    return function(leaf) if _is_state_array(leaf) else leaf

  return jax.tree.map(apply, state, is_leaf=_is_state_array)


def arrays(state: Any) -> Any:
  """Returns a state with plain arrays."""
  return _map(lambda leaf: leaf.array, state)


def with_arrays(state: Any, new: Any) -> Any:
  """Returns a state with the plain arrays of a pytree of its structure."""

  def replace(leaf, array):
    return dataclasses.replace(leaf, array=array) if _is_state_array(leaf) else array

  return jax.tree.map(replace, state, new, is_leaf=_is_state_array)


def padded_sources(state: Any, source_length: int) -> Any:
  """Returns a state for sources of a length that is no shorter than theirs."""
  return _map(lambda leaf: _with_axis(leaf, leaf.source_axis, source_length), state)


def grown(state: Any, length: int) -> Any:
  """Returns a state with a place for `length` target positions, its content kept."""
  return _map(lambda leaf: _with_axis(leaf, leaf.time_axis, length * leaf.slots), state)


def reordered(state: Any, origin_BW) -> Any:
  """Returns a state whose hypothesis w was the hypothesis origin[b, w] of its sentence."""

  def reorder(leaf):
    if not leaf.by_hypothesis:
      return leaf
    return dataclasses.replace(leaf, array=take(leaf.array, origin_BW))

  return _map(reorder, state)


def _with_axis(leaf: StateArray, axis: int | None, length: int) -> StateArray:
  """Returns an array whose axis has a length, filled with zeros; None is no axis."""
  if axis is None:
    return leaf
  return dataclasses.replace(leaf, array=padded_axis(leaf.array, axis, length))


class Hypotheses(NamedTuple):
  """The W best hypotheses of each input, best first.

  If an input has fewer than W hypotheses, the last ones have length 0, log-probability −inf and
  score −inf.
  """

  tokens: jax.Array  # int32 [B, W, T], the end token included, `PAD` after it
  lengths: jax.Array  # int32 [B, W], number of tokens before the padding
  log_probs: jax.Array  # float32 [B, W], natural logarithms, summed over tokens
  scores: jax.Array  # float32 [B, W], log-probability divided by the length penalty


class SearchOptions(NamedTuple):
  """Options that all searches share.

  Attributes:
    max_length: T, the length of the returned token arrays; no input's limit is larger.
    begin_id: the token before the first one of every hypothesis.
    end_id: the token that ends a hypothesis.
    alpha: exponent of the length penalty in the scores; with 0 a score is the log-probability.
  """

  max_length: int
  begin_id: int
  end_id: int
  alpha: float = 0.6


class Search(NamedTuple):
  """A search in three parts.

  Attributes:
    start: the state before the first token, a named tuple. Its `t` is the number of tokens so
      far, `done` [B, ...] says whether the search is over, and `cache` is that of the step
      function. `t` and other scalars are the same for all inputs.
    add_token: a function state -> state that adds a token.
    finish: a function state -> `Hypotheses`, which does not read the cache.
    options: of the search.
  """

  start: Any
  add_token: Callable
  finish: Callable[[Any], Hypotheses]
  options: SearchOptions


def run_search(search: Search) -> Hypotheses:
  """Adds tokens until the search for every input is over, and returns what it finds.

  The length of the cache doubles when it is full, so that short hypotheses cost less.
  """
  state = search.start
  for length in cache_lengths(search.options.max_length):
    state = add_tokens(search, grown(state, length), length)
  return search.finish(state)


def add_tokens(search: Search, state, t) -> Any:
  """Adds tokens until there are `t` of them, or the search for every input is over."""
  return jax.lax.while_loop(
    lambda state: (state.t < t) & ~jnp.all(state.done), search.add_token, state
  )


def cache_lengths(max_length) -> list[int]:
  """Returns the lengths that a cache grows to, each twice the one before; the last is the whole."""
  lengths = [_FIRST_LENGTH]
  while 2 * lengths[-1] <= max_length:
    lengths.append(2 * lengths[-1])
  return [*lengths[:-1], max_length]


def length_penalty(length, alpha) -> jax.Array:
  """Returns ((5 + n) / 6)^α for n tokens: Wu et al., 2016, equation 14."""
  return ((5.0 + length) / 6.0) ** alpha


def best(hypotheses: Hypotheses, count) -> Hypotheses:
  """Returns the `count` best hypotheses by descending score; ties keep their order."""
  _, chosen = top_k(hypotheses.scores, count)
  return jax.tree.map(lambda leaf: take(leaf, chosen), hypotheses)
