"""Projected keys and values, and the cache that decoding keeps of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class KeysValues(NamedTuple):
  """Projected keys [..., S, H, K] and values [..., S, H, V]."""

  keys: jax.Array
  values: jax.Array


class Cache(NamedTuple):
  """Keys and values for decoding, in the layout of the matrix products.

  Attributes:
    keys: [..., H, K, S].
    values: [..., H, S, V].
  """

  keys: jax.Array
  values: jax.Array

  def padded_to(self, slots) -> 'Cache':
    """Returns the cache with S = `slots`; the new slots hold zeros."""
    more = slots - self.keys.shape[-1]
    before = [(0, 0)] * (self.keys.ndim - 2)
    return Cache(jnp.pad(self.keys, (*before, (0, 0), (0, more))),
                 jnp.pad(self.values, (*before, (0, more), (0, 0))))
