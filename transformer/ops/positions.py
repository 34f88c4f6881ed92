"""Positions: added to the embeddings, turned into queries and keys, or added to the scores."""

import jax.numpy as jnp
import numpy as np

_BASE = 10_000.0


def sinusoidal_positions(length, dim):
  """The paper's fixed encodings: section 3.5.

  PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)),
  sine and cosine interleaved as published. For any k, PE(p + k) is a linear map
  of PE(p), the same for all p.

  Args:
    length: number of positions, T.
    dim: model width, D; an odd one ends on a sine.

  Returns:
    [T, D] float32, computed in float64 on the host, so that it is a constant of
    the compiled program.
  """
  position = np.arange(length, dtype=np.float64)[:, None]
  even = np.arange(0, dim, 2, dtype=np.float64)[None, :]
  angles = position / _BASE ** (even / dim)
  table = np.empty((length, dim), np.float32)
  table[:, 0::2] = np.sin(angles)
  table[:, 1::2] = np.cos(angles[:, : dim // 2])
  return table


def sinusoidal_shift(offset, dim):
  """The linear map from PE(p) to PE(p + k), the same for every p: section 3.5.

  Each sine and its cosine are a point on a circle, which k turns by k / 10000^(2i/D).

  Args:
    offset: k, any number.
    dim: model width, D, even.

  Returns:
    [D, D] float64, M with PE(p + k) = M · PE(p).

  Raises:
    ValueError: D is odd, so that the last sine has no cosine to turn to.
  """
  if dim % 2:
    raise ValueError(f'only pairs of a sine and a cosine can be shifted; got a width of {dim}')
  angles = offset / _BASE ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
  shift = np.zeros((dim, dim))
  even, odd = np.arange(0, dim, 2), np.arange(1, dim, 2)
  shift[even, even] = shift[odd, odd] = np.cos(angles)
  shift[even, odd] = np.sin(angles)
  shift[odd, even] = -np.sin(angles)
  return shift


def rotate(x_BTHK, positions_BT):
  """Rotary positions: Su et al., 2021, "RoFormer", equations 14, 15 and 34.

  Dims 2i and 2i + 1 of a head are turned by p / 10000^(2i/K), so that the dot
  product of a query and a key depends on the distance between them, and on no
  position itself.

  Args:
    x_BTHK: queries or keys; K is even.
    positions_BT: numbers; they broadcast against [..., T].

  Returns:
    The same shape and type; the arithmetic is float32.

  Raises:
    ValueError: K is odd.
  """
  dim = x_BTHK.shape[-1]
  if dim % 2:
    raise ValueError(f'rotary positions turn pairs of dims; got heads of {dim}')
  turns = _BASE ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
  positions_BT = jnp.broadcast_to(positions_BT, x_BTHK.shape[:-2]).astype(jnp.float32)
  angles = jnp.einsum('...T,I->...TI', positions_BT, turns)[..., None, :]
  cos, sin = jnp.cos(angles), jnp.sin(angles)
  even, odd = x_BTHK[..., 0::2].astype(jnp.float32), x_BTHK[..., 1::2].astype(jnp.float32)
  turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
  return turned.reshape(x_BTHK.shape).astype(x_BTHK.dtype)


def relative_buckets(distances, num_buckets=32, max_distance=128, *, bidirectional):
  """Which bias of a head a distance takes: T5, Raffel et al., 2020, section 2.1.

  The first half of the buckets are of one distance each, the others grow with its
  logarithm, and the last holds all from `max_distance` on.

  Args:
    distances: integers, the key's position less the query's.
    num_buckets: how many there are.
    max_distance: from where on all distances are alike.
    bidirectional: half of the buckets are of keys that come after the query;
      otherwise these are all in the bucket of distance 0, for attention that never
      sees them.

  Returns:
    int32 in [0, num_buckets), the shape of `distances`.

  Raises:
    ValueError: there are too few buckets for two halves, or `max_distance` lies in the first.
  """
  least = 4 if bidirectional else 2
  exact = num_buckets // least
  if exact < 1 or max_distance <= exact:
    raise ValueError(f'buckets must be {least} or more, and max_distance beyond the first '
                     f'{exact} distances; got {num_buckets} and {max_distance}')
  first = 0
  if bidirectional:
    num_buckets //= 2
    first = jnp.where(distances > 0, num_buckets, 0)
    away = jnp.abs(distances)
  else:
    away = jnp.maximum(-distances, 0)
  share = (jnp.log(jnp.maximum(away, exact).astype(jnp.float32) / exact)
           / np.log(max_distance / exact))
  far = jnp.minimum(exact + (share * (num_buckets - exact)).astype(jnp.int32), num_buckets - 1)
  return (first + jnp.where(away < exact, away, far)).astype(jnp.int32)
