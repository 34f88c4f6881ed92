"""Sinusoidal and rotary positions, and the buckets of the relative bias."""

import jax
import jax.numpy as jnp
import numpy as np

_BASE = 10_000.0


def sinusoidal_positions(length, dim, first=0) -> np.ndarray | jax.Array:
  """Returns `sinusoidal_encoding` of successive positions, [T, D], a constant of the host."""
  return sinusoidal_encoding(np.arange(first, first + length), dim)


def sinusoidal_encoding(positions, dim) -> np.ndarray | jax.Array:
  """Returns the paper's sinusoidal encoding of each position: section 3.5.

  PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)),
  sine and cosine interleaved as published.

  Args:
    positions: p, integers or floats of any shape.
    dim: model width, D; an odd width ends with a sine.

  Returns:
    [..., D] float32. NumPy's arrays and Python's numbers are computed in float64 on the host.
    JAX's arrays, traced or not, are computed in float32 on the device; the error of an angle
    is then about p · 10⁻⁷.
  """
  xp, dtype = (jnp, jnp.float32) if isinstance(positions, jax.Array) else (np, np.float64)
  positions = xp.asarray(positions, dtype)[..., None]
  periods = _BASE ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
  angles = positions / periods.astype(dtype).reshape(*(1,) * (positions.ndim - 1), -1)
  pairs = xp.stack([xp.sin(angles), xp.cos(angles)], axis=-1)
  # An odd width has one cosine too many.
  return pairs.reshape(*positions.shape[:-1], 2 * len(periods))[..., :dim].astype(np.float32)


def rotate(x_BTHK, positions_BT) -> jax.Array:
  """Rotates queries or keys by their positions: Su et al., 2021, "RoFormer", equations 14, 15, 34.

  Dims 2i and 2i + 1 of a head are rotated by the angle p / 10000^(2i/K). The dot product of a
  query and a key then depends on the distance between them alone. K must be even. The positions may
  be any numbers that broadcast against [..., T].
  """
  dim = x_BTHK.shape[-1]
  if dim % 2:
    raise ValueError(f'rotary positions rotate pairs of dims; got heads of {dim}')
  frequencies = _BASE ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
  positions_BT = jnp.broadcast_to(positions_BT, x_BTHK.shape[:-2]).astype(jnp.float32)
  # By default, a TPU would round positions above 256 to 8 bits.
  angles = jnp.einsum(
    '...T,I->...TI', positions_BT, frequencies, precision=jax.lax.Precision.HIGHEST
  )[..., None, :]
  cos, sin = jnp.cos(angles), jnp.sin(angles)
  even, odd = x_BTHK[..., 0::2].astype(jnp.float32), x_BTHK[..., 1::2].astype(jnp.float32)
  rotated = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
  return rotated.reshape(x_BTHK.shape).astype(x_BTHK.dtype)


def relative_buckets(distances, num_buckets=32, max_distance=128, *, bidirectional) -> jax.Array:
  """Returns each distance's bucket in T5's relative bias, int32: Raffel et al., 2020, section 2.1.

  Of the buckets of one direction, the first half hold one distance each. The others hold ranges
  of equal width in the logarithm of the distance. The last bucket begins below `max_distance`, and
  holds all distances from there on.

  Args:
    distances: integers, the key's position minus the query's.
    bidirectional: True gives half of the buckets to keys after the query. False is for
      masked attention and puts keys after the query into bucket 0.
  """
  least = 4 if bidirectional else 2
  exact = num_buckets // least
  if exact < 1 or max_distance <= exact:
    raise ValueError(
      f'num_buckets must be at least {least}, and max_distance above {exact}; '
      f'got {num_buckets} and {max_distance}'
    )
  first = 0
  if bidirectional:
    num_buckets //= 2
    first = jnp.where(distances > 0, num_buckets, 0)
    away = jnp.abs(distances)
  else:
    away = jnp.maximum(-distances, 0)
  share = jnp.log(jnp.maximum(away, exact).astype(jnp.float32) / exact) / np.log(
    max_distance / exact
  )
  far = jnp.minimum(exact + (share * (num_buckets - exact)).astype(jnp.int32), num_buckets - 1)
  return (first + jnp.where(away < exact, away, far)).astype(jnp.int32)
