"""What XLA compiles to slow programs on a CPU, written so that they are fast there.

Without it, a CPU takes so much more time, in JAX 0.12 on two cores:

| function | phrasebook's model | base model |
| --- | --- | --- |
| `kernel_gradient`, a training step | 10 % | 6 % |
| `random_bits`, a training step | 8 % | 5 % |

The base model had 16 rows of 64 positions. `random_bits` is the same on all platforms.
"""

import math

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def kernel_gradient(x_PI, gradient_PO) -> jax.Array:
  """Returns xᵀ · gradient, [I, O], by transposing the smaller factor.

  XLA transposes the product, and then cannot use its fastest kernels.
  """
  # The barriers keep XLA from folding the transpositions into the product.
  if x_PI.shape[1] <= gradient_PO.shape[1]:
    return jax.lax.optimization_barrier(x_PI.T) @ gradient_PO
  return jax.lax.optimization_barrier(
    jax.lax.optimization_barrier(gradient_PO.T) @ x_PI
  ).T


def random_bits(key, shape) -> jax.Array:
  """Returns the bits of `jax.random.bits(key, shape)`, written so that XLA can fuse them.

  The bits of an element are Threefry-2x32 with 20 rounds (Salmon et al., 2011) of its number in
  row-major order, a word. They depend only on the key and this number, and not on the sharding. On
  a CPU, JAX compiles its own version to a loop over whole arrays. Here each element is computed
  where it is used, and nothing is stored.
  """
  key_low, key_high = jax.random.key_data(key)
  keys = (key_low, key_high, key_low ^ key_high ^ jnp.uint32(_PARITY))
  a = jnp.broadcast_to(keys[0], shape)
  b = _element_numbers(shape) + keys[1]
  for group in range(5):
    for rotation in _ROTATIONS[group % 2]:
      a += b
      b = (b << rotation) | (b >> (32 - rotation))
      b ^= a
    a += keys[(group + 1) % 3]
    b += keys[(group + 2) % 3] + jnp.uint32(group + 1)
  return a ^ b


def _element_numbers(shape):
  numbers = jnp.zeros(shape, jnp.uint32)
  for axis in range(
    len(shape)
  ):  # One iota for each axis: a reshape would end the fusion.
    stride = jnp.uint32(math.prod(shape[axis + 1 :]))
    numbers += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
  return numbers
