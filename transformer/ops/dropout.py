"""Dropout, with random bits that XLA computes where they are used."""

import jax
import jax.numpy as jnp

from transformer.ops.cpu import random_bits


def random_key(seed: int) -> jax.Array:
  """Returns the root key of a run, with the generator that `dropout` needs."""
  return jax.random.key(seed, impl='threefry2x32')


def dropout(key, x, rate) -> jax.Array:
  """Zeroes each element with probability `rate` and scales the others up (section 5.4).

  Args:
    key: a JAX random key of the default generator, `threefry2x32`.
    rate: 0 ≤ rate < 1, a Python number.
  """
  if rate == 0.0:
    return x
  keep = 1.0 - rate
  threshold = min(round(keep * 2**32), 2**32 - 1)
  kept = random_bits(key, x.shape) < jnp.uint32(threshold)
  return jnp.where(kept, x * jnp.asarray(1.0 / keep, x.dtype), jnp.zeros((), x.dtype))
