"""The state of the Transformer during a search, as pytrees of `StateArray`s.

Steps take and return the same pytrees with plain arrays instead of `StateArray`s.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from transformer.ops.search import StateArray


class KVCache(NamedTuple):
  """Keys [..., H, K, S] and values [..., H, S, V], laid out as the decoding matmuls read them."""

  keys: Any
  values: Any

  @classmethod
  def from_keys_values(cls, keys_BSHK, values_BSHV) -> 'KVCache':
    """Returns a cache of keys [..., S, H, K] and values [..., S, H, V]."""
    return cls(jnp.moveaxis(keys_BSHK, -3, -1), jnp.moveaxis(values_BSHV, -3, -2))

  def source_state(self) -> 'KVCache':
    """Returns the keys and values of source positions as `StateArray`s."""
    return KVCache(
      StateArray(self.keys, source_axis=-1), StateArray(self.values, source_axis=-2)
    )

  def target_state(self, beams: int) -> 'KVCache':
    """Returns the keys and values of W hypotheses at each target position as `StateArray`s."""
    return KVCache(
      StateArray(self.keys, time_axis=-1, slots=beams),
      StateArray(self.values, time_axis=-2, slots=beams),
    )


class EncodedSource(NamedTuple):
  """The source arrays that decoding steps read."""

  is_token_BS: Any  # boolean, False at padding
  caches: tuple[KVCache, ...]  # keys and values for cross-attention, by decoder layer


class DecoderState(NamedTuple):
  """The decoder state between decoding steps.

  The W hypotheses of a source share one cache, with W slots per position. A search reorders only
  the lineage, which lists the slots of the prefix of each hypothesis.
  """

  lineage_BWT: Any  # int32, as in `ops.masks.lineage_mask`
  caches: tuple[KVCache, ...]  # by decoder layer
