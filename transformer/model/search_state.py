"""What a model keeps during a search: arrays with the axes that a search may change.

A model returns pytrees of `StateArray`s before the first token. Its steps get and return the same
pytrees with plain arrays in their places. Those of the Transformer are named tuples here.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp


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


class KVCache(NamedTuple):
  """Keys [..., H, K, S] and values [..., H, S, V], laid out for the products of decoding."""

  keys: Any
  values: Any

  @classmethod
  def of(cls, keys_BSHK, values_BSHV) -> 'KVCache':
    """Lays out the keys and values of `MultiHeadAttention.keys_values`."""
    return cls(jnp.moveaxis(keys_BSHK, -3, -1), jnp.moveaxis(values_BSHV, -3, -2))

  def of_source(self) -> 'KVCache':
    """Returns the keys and values of a source's positions as `StateArray`s."""
    return KVCache(
      StateArray(self.keys, source_axis=-1), StateArray(self.values, source_axis=-2)
    )

  def of_target(self, beams: int) -> 'KVCache':
    """Returns the keys and values of W hypotheses at each target position as `StateArray`s."""
    return KVCache(
      StateArray(self.keys, time_axis=-1, slots=beams),
      StateArray(self.values, time_axis=-2, slots=beams),
    )


class Source(NamedTuple):
  """What the decoder's steps read of a source."""

  is_token_BS: Any  # boolean, False at padding
  memory: tuple[KVCache, ...]  # for each decoder layer, its keys and values


class DecoderState(NamedTuple):
  """What the decoder's steps keep.

  All W hypotheses of a source share one cache, with a slot for each at each position. A search
  reorders only the lineage, which says in which slots the past of each hypothesis is.
  """

  lineage_BWT: Any  # int32, as in `ops.masks.lineage_mask`
  caches: tuple[KVCache, ...]  # for each decoder layer


def arrays(state: Any) -> Any:
  """Returns a state with plain arrays."""
  return _map(lambda leaf: leaf.array, state)


def with_arrays(state: Any, new: Any) -> Any:
  """Returns a state with the arrays of a pytree `new`, which has its structure but plain arrays."""

  def replaced(leaf, array):
    return dataclasses.replace(leaf, array=array) if _is_state_array(leaf) else array

  return jax.tree.map(replaced, state, new, is_leaf=_is_state_array)


def padded(state: Any, source_length: int) -> Any:
  """Returns a state for sources of a length that is no shorter than theirs."""
  return _map(lambda leaf: _with_axis(leaf, leaf.source_axis, source_length), state)


def grown(state: Any, length: int) -> Any:
  """Returns a state with a place for `length` target positions, its content kept."""
  return _map(lambda leaf: _with_axis(leaf, leaf.time_axis, length * leaf.slots), state)


def split(state: Any) -> tuple[Any, Any]:
  """Returns what is reordered with the hypotheses, and all else; `joined` is the inverse."""

  def chosen(reordered):
    def keep(leaf):
      return (
        leaf if (_is_state_array(leaf) and leaf.by_hypothesis) == reordered else None
      )

    return jax.tree.map(keep, state, is_leaf=_is_state_array)

  return chosen(True), chosen(False)


def joined(by_hypothesis: Any, others: Any) -> Any:
  """Returns the state that `split` has split."""
  return jax.tree.map(
    lambda one, other: other if one is None else one,
    by_hypothesis,
    others,
    is_leaf=lambda node: node is None or _is_state_array(node),
  )


def _is_state_array(leaf) -> bool:
  return isinstance(leaf, StateArray)


def _map(function: Callable, state: Any) -> Any:
  """Maps the `StateArray`s of a state; other leaves stay."""
  return jax.tree.map(
    lambda leaf: function(leaf) if _is_state_array(leaf) else leaf,
    state,
    is_leaf=_is_state_array,
  )


def _with_axis(leaf: StateArray, axis: int | None, length: int) -> StateArray:
  """Returns an array whose axis has a length, filled with zeros; None is no axis."""
  if axis is None:
    return leaf
  padding = [(0, 0)] * leaf.array.ndim
  padding[axis] = 0, length - leaf.array.shape[axis]
  return dataclasses.replace(leaf, array=jnp.pad(leaf.array, padding))
