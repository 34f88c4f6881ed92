"""Sinusoidal and rotary positions, and the buckets of the relative position bias."""

import jax
import jax.numpy as jnp
import numpy as np

_BASE = 10_000.0
# T5's relative position bias: number of buckets; larger distances share the last bucket.
NUM_BUCKETS = 32
_MAX_DISTANCE = 128


def sinusoidal_positions(length, dim) -> np.ndarray:
  """Computes `sinusoidal_encoding` for the positions from 0 to `length` − 1, [T, D]."""
  return sinusoidal_encoding(np.arange(length), dim)


def sinusoidal_encoding(positions, dim) -> np.ndarray:
  """Returns the paper's sinusoidal encoding of each position: section 3.5.

  PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)),
  with sine and cosine interleaved as published.

  Args:
    positions: p, integers or floats of any shape; NumPy arrays, because angles are float64.
    dim: model width, D; an odd width ends with a sine.

  Returns:
    [..., D] float32, a NumPy array on the host.
  """
  periods = _BASE ** (np.arange(0, dim, 2) / dim)
  angles = np.asarray(positions, np.float64)[..., None] / periods
  pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
  # For an odd width, drop the last cosine.
  return pairs.reshape(*angles.shape[:-1], 2 * len(periods))[..., :dim].astype(
    np.float32
  )


def apply_rotary(x_BTHK, positions_BT) -> jax.Array:
  """Rotates queries or keys by their positions: Su et al., 2021, "RoFormer", equations 14, 15, 34.

  Dims 2i and 2i + 1 of a head are rotated by the angle p / 10000^(2i/K). The dot product of a
  query and a key then depends on their positions only through the distance. K must be even. The
  positions may be any numbers that broadcast to [..., T].
  """
  dim = x_BTHK.shape[-1]
  frequencies = _BASE ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
  positions_BT = jnp.broadcast_to(positions_BT, x_BTHK.shape[:-2]).astype(jnp.float32)
  # By default, a TPU would round positions above 256 to 8 bits.
  angles = jnp.einsum(
    '...T,I->...TI', positions_BT, frequencies, precision=jax.lax.Precision.HIGHEST
  )[..., None, :]
  cos = jnp.cos(angles)
  sin = jnp.sin(angles)
  even = x_BTHK[..., 0::2].astype(jnp.float32)
  odd = x_BTHK[..., 1::2].astype(jnp.float32)
  rotated = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
  return rotated.reshape(x_BTHK.shape).astype(x_BTHK.dtype)


def relative_buckets(distances, *, bidirectional) -> jax.Array:
  """Returns the bucket of each distance in T5's relative bias, int32 (Raffel et al., 2020, 2.1).

  Of the buckets of one direction, the first half hold one distance each. The others hold ranges
  of equal width in the logarithm of the distance. The last bucket also has all distances ≥ 128.

  Args:
    distances: integers, key position minus query position.
    bidirectional: True assigns half of the buckets to keys after the query. False is for causal
      attention and assigns keys after the query to bucket 0.
  """
  buckets = NUM_BUCKETS
  first = 0
  away = jnp.maximum(-distances, 0)
  if bidirectional:
    buckets //= 2
    first = jnp.where(distances > 0, buckets, 0)
    away = jnp.abs(distances)
  exact = buckets // 2
  fraction = jnp.log(jnp.maximum(away, exact).astype(jnp.float32) / exact)
  fraction /= np.log(_MAX_DISTANCE / exact)
  far = jnp.minimum(
    exact + (fraction * (buckets - exact)).astype(jnp.int32), buckets - 1
  )
  return (first + jnp.where(away < exact, away, far)).astype(jnp.int32)
