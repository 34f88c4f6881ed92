"""What the Transformer keeps during a search, as pytrees of `StateArray`s.

Its steps get and return the same pytrees with plain arrays in their places.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from transformer.ops.search import StateArray


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
