"""Padding and splitting of array axes."""

import jax
import jax.numpy as jnp


def pad_axis(x, axis, length, value=0) -> jax.Array:
  """Returns the array with one axis padded to `length` with `value`."""
  padding = [(0, 0)] * x.ndim
  padding[axis] = 0, length - x.shape[axis]
  return jnp.pad(x, padding, constant_values=value)


def split_axis(x, axis, parts, size) -> jax.Array:
  """Splits axis `axis` ≥ 0, padded with zeros; returns [parts, …, size, …]."""
  x = pad_axis(x, axis, parts * size)
  x = x.reshape(*x.shape[:axis], parts, size, *x.shape[axis + 1 :])
  return jnp.moveaxis(x, axis, 0)
