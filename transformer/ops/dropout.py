"""Dropout, with random bits that cost next to nothing."""

import math

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def dropout(key, x, rate):
  """Zeroes each element with probability `rate` and scales up the others (section 5.4).

  Args:
    key: a JAX random key of the default generator, `threefry2x32`.
    x: any shape.
    rate: probability of zeroing, 0 ≤ rate < 1, a Python number.

  Returns:
    Same shape and type as `x`.

  Raises:
    ValueError: the rate is out of range.
  """
  if not 0.0 <= rate < 1.0:
    raise ValueError(f'the dropout rate must be at least 0 and below 1; got {rate}')
  if rate == 0.0:
    return x
  keep = 1.0 - rate
  below = min(round(keep * 2 ** 32), 2 ** 32 - 1)
  kept = random_bits(key, x.shape) < jnp.uint32(below)
  return jnp.where(kept, x * jnp.asarray(1.0 / keep, x.dtype), jnp.zeros((), x.dtype))


def random_bits(key, shape):
  """The bits of `jax.random.bits(key, shape)`, written so that XLA can fuse them away.

  Threefry-2x32 with 20 rounds (Salmon et al., 2011) of each element's index. JAX
  lowers its own to a loop over whole arrays on a CPU, which makes dropout cost
  more than the model; here every element is computed where it is used, and
  nothing is stored. An element's bits depend on the key and its index alone, so
  they are the same however the array is sharded.

  Args:
    key: a JAX random key of the default generator, `threefry2x32`.
    shape: of any number of elements.

  Returns:
    uint32 of that shape.
  """
  # One iota an axis: no reshape, which would end the fusion.
  places = [jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in range(len(shape))]
  return _threefry(key, *_numbers(places, shape))


def _numbers(places, shape):
  """Row-major numbers of elements, by their places on each axis, as a high and a low word."""
  high = low = jnp.zeros(jnp.broadcast_shapes(*(place.shape for place in places)), jnp.uint32)
  for axis, place in enumerate(places):
    stride = math.prod(shape[axis + 1:])
    part = place * jnp.uint32(stride % 2 ** 32)
    low += part
    if math.prod(shape) >= 2 ** 32:  # Else the high word is 0.
      carry = low < part
      high += (_high_product(place, stride % 2 ** 32) + place * jnp.uint32(stride // 2 ** 32)
               + carry.astype(jnp.uint32))
  return high, low


def _high_product(a, b: int):
  """The high word of uint32 times a constant below 2³², by halves of words."""
  low, high = jnp.uint32(b % 2 ** 16), jnp.uint32(b // 2 ** 16)
  half = jnp.uint32(2 ** 16 - 1)
  first = (a >> 16) * low + ((a & half) * low >> 16)
  second = (a & half) * high + (first & half)
  return (a >> 16) * high + (first >> 16) + (second >> 16)


def _threefry(key, high, low):
  """The bits of elements with these numbers."""
  key_low, key_high = jax.random.key_data(key)
  keys = (key_low, key_high, key_low ^ key_high ^ jnp.uint32(_PARITY))
  a, b = high + keys[0], low + keys[1]
  for group in range(5):
    for rotation in _ROTATIONS[group % 2]:
      a += b
      b = (b << rotation) | (b >> (32 - rotation))
      b ^= a
    a += keys[(group + 1) % 3]
    b += keys[(group + 2) % 3] + jnp.uint32(group + 1)
  return a ^ b
