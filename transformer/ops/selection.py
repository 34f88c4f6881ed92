"""Selection from rows: the largest numbers of each, and entries and rows chosen by index.

Two letters belong to this file: X numbers in a row, M blocks of a row.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer.ops.axes import padded_axis


def top_k(x_BX, count) -> tuple[jax.Array, jax.Array]:
  """Returns the `count` largest numbers of each row, descending, and their indices: `top_sums`."""
  values_BC, _, where_BC = top_sums(x_BX[:, None], [], count)
  return values_BC, where_BC


def top_sums(
  x_BWX, terms: Sequence[jax.Array], count
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the largest sums of each b, and their places.

  The sums are those of `add_terms`. Equal sums keep the order of w, then that of i. Long rows are
  cut into blocks: the largest sums are all in the `count` blocks with the largest maxima. The
  maxima of x are found first and need no copy of it. Rounding keeps the order of numbers, so the
  terms may be added to the maxima.

  Without the barriers, XLA sorts the whole row on a CPU where only a slice of the result is
  used. One barrier around both results would crash XLA's compiler under `pmap`.

  Returns:
    The C = `count` sums [B, C], descending, and the indices w and i of each, int32 [B, C].
  """
  batch, rows, width = x_BWX.shape
  block = _block_size(rows, width, count)
  if block == 1:
    sums_BX = add_terms(x_BWX, terms).reshape(batch, -1)
    values_BC, where_BC = map(
      jax.lax.optimization_barrier, jax.lax.top_k(sums_BX, count)
    )
    return values_BC, where_BC // width, where_BC % width
  blocks = -(-width // block)
  x_BWX = padded_axis(x_BWX, 2, blocks * block, -jnp.inf)
  x_BMX = x_BWX.reshape(batch, -1, block)
  maxima_BWM = add_terms(jnp.max(x_BMX, axis=-1).reshape(batch, rows, blocks), terms)
  _, chosen_BC = top_k(maxima_BWM.reshape(batch, -1), count)
  # The chosen blocks go back into the order of the rows, so that equal sums keep theirs.
  chosen_BC = jnp.sort(chosen_BC, axis=-1)
  row_BC = chosen_BC // blocks
  terms = [take(term_BW, row_BC) for term_BW in terms]
  values_BC, block_BC, where_BC = top_sums(take(x_BMX, chosen_BC), terms, count)
  return (
    values_BC,
    take(row_BC, block_BC),
    take(chosen_BC % blocks, block_BC) * block + where_BC,
  )


def add_terms(x_BWX, terms: Sequence[jax.Array]) -> jax.Array:
  """Returns x[b, w, i] plus each of the terms [b, w], one after the other."""
  for term_BW in terms:
    x_BWX = x_BWX + term_BW[:, :, None]
  return x_BWX


def normalised(logits_BWN) -> tuple[jax.Array, list[jax.Array]]:
  """Returns float32 [B, W, N] and terms [B, W], whose sums are the log-probabilities of logits.

  So a beam search need not write all log-probabilities on a CPU, where the barriers keep XLA from
  doing it. Other platforms have kernels for the whole function, and the terms are 0.
  """

  def on_cpu(logits_BWN):
    barrier = jax.lax.optimization_barrier
    logits_BWN = barrier(logits_BWN)
    largest_BW = barrier(jnp.max(logits_BWN, axis=-1))
    total_BW = barrier(jnp.sum(jnp.exp(logits_BWN - largest_BW[:, :, None]), axis=-1))
    return logits_BWN, [-largest_BW, -jnp.log(total_BW)]

  def elsewhere(logits_BWN):
    no_term_BW = jnp.zeros(logits_BWN.shape[:2])
    return jax.nn.log_softmax(logits_BWN), [no_term_BW, no_term_BW]

  return jax.lax.platform_dependent(logits_BWN, cpu=on_cpu, default=elsewhere)


def _block_size(rows, width, count):
  """Returns the size of the blocks for `top_sums`; 1 where the rows cannot be cut into blocks.

  The ideal size gives as many maxima, rows · width / size, as numbers in the chosen blocks,
  count · size. A size that divides the width needs no padding and is preferred. Another size must
  be at least `count`: if numbers of -inf are among the largest, the first block alone then holds
  enough of them, so that padding is never chosen.
  """
  ideal = min(math.sqrt(rows * width / count), width)
  if ideal < 8:
    return 1
  near = range(math.ceil(ideal / 2), min(math.floor(ideal * 2), width) + 1)
  sizes = [size for size in near if width % size == 0]
  sizes = sizes or [size for size in near if size >= count]
  return min(sizes, key=lambda size: abs(math.log(size / ideal)), default=1)


def take(leaf, origin_BW) -> jax.Array:
  """Reorders axis 1 of [B, W, ...]: the result at [b, w] is leaf[b, origin[b, w]]."""
  return jnp.take_along_axis(
    leaf, origin_BW.reshape(*origin_BW.shape, *[1] * (leaf.ndim - 2)), axis=1
  )


def where_rows(condition_B, yes, no) -> Any:
  """Returns the rows [b, ...] of the pytree `yes` where the condition is True, else of `no`."""
  where = jax.vmap(jnp.where)
  return jax.tree.map(lambda one, other: where(condition_B, one, other), yes, no)
