"""Axes of arrays, filled up and split into parts."""

import jax
import jax.numpy as jnp


def padded_axis(x, axis, length, value=0) -> jax.Array:
  """Returns an array whose axis has a length, filled up with a value."""
  padding = [(0, 0)] * x.ndim
  padding[axis] = 0, length - x.shape[axis]
  return jnp.pad(x, padding, constant_values=value)


def split_axis(x, axis, parts, size) -> jax.Array:
  """Returns an array [parts, …, size, …] of the parts of axis `axis` ≥ 0, filled up with zeros."""
  x = padded_axis(x, axis, parts * size)
  x = x.reshape(*x.shape[:axis], parts, size, *x.shape[axis + 1 :])
  return jnp.moveaxis(x, axis, 0)
