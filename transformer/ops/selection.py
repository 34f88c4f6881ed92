"""Selection from rows: the largest numbers of each, and entries and rows chosen by index.

Two letters belong to this file: X numbers in a row, M blocks of a row.
"""

import math

import jax
import jax.numpy as jnp


def top_k(x_BX, count):
  """Returns the `count` largest numbers of each row, descending, and their indices.

  Equal numbers keep their order. Long rows are cut into blocks. The largest numbers are all in
  the `count` blocks with the largest maxima, and the maxima need no copy of the row.

  Without the barriers, XLA sorts the whole row on a CPU where only a slice of the result is
  used. One barrier around both results would crash XLA's compiler under `pmap`.
  """
  rows, width = x_BX.shape
  block = _block_size(width, count)
  if block == 1:
    return tuple(map(jax.lax.optimization_barrier, jax.lax.top_k(x_BX, count)))
  blocks = -(-width // block)
  if blocks * block != width:
    x_BX = jnp.pad(x_BX, ((0, 0), (0, blocks * block - width)), constant_values=-jnp.inf)
  x_BMX = x_BX.reshape(rows, blocks, block)
  _, chosen_BC = top_k(jnp.max(x_BMX, axis=-1), count)
  # The chosen blocks go back into the order of the row, so that equal numbers keep theirs.
  chosen_BC = jnp.sort(chosen_BC, axis=-1)
  values, where = top_k(take(x_BMX, chosen_BC).reshape(rows, -1), count)
  return values, jnp.take_along_axis(chosen_BC, where // block, axis=1) * block + where % block


def _block_size(width, count):
  """Returns the size of the blocks for `top_k`; 1 where the row is too short for blocks.

  The ideal size gives as many maxima, width / size, as numbers in the chosen blocks, count · size.
  A size that divides the row needs no padding and is preferred.
  """
  ideal = math.sqrt(width / count)
  if ideal < 8:
    return 1
  near = range(math.ceil(ideal / 2), math.floor(ideal * 2) + 1)
  return min(near, key=lambda size: (width % size != 0, abs(math.log(size / ideal))))


def take(leaf, origin_BW):
  """Reorders axis 1 of [B, W, ...]: the result at [b, w] is leaf[b, origin[b, w]]."""
  return jnp.take_along_axis(leaf, origin_BW.reshape(*origin_BW.shape, *[1] * (leaf.ndim - 2)),
                             axis=1)


def where_rows(condition_B, yes, no):
  """Returns the rows [b, ...] of the pytree `yes` where the condition is True, else of `no`."""
  return jax.tree.map(
      lambda one, other: jnp.where(condition_B.reshape(-1, *[1] * (one.ndim - 1)), one, other),
      yes, no)
