"""Selection from rows: top-k, gathering entries by index, and choosing rows by a condition.

In this file only, X stands for numbers in a row, M for blocks of a row.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer.ops.axes import pad_axis


def top_k(x_BX, count) -> tuple[jax.Array, jax.Array]:
  """Returns the `count` largest numbers of each row, descending, and their indices."""
  values_BC, _, index_BC = top_sums(x_BX[:, None], [], count)
  return values_BC, index_BC


def top_sums(
  x_BWX, terms: Sequence[jax.Array], count
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the largest sums x[b, w, i] + Σ terms[b, w] of each b, and their indices.

  Ties keep the order of w, then the order of i. Long rows are split into blocks: the largest sums
  are all in the `count` blocks with the largest maxima. The maxima of x are computed without a copy
  of x. Rounding is monotonic, so the terms may be added to the maxima.

  Without the barriers, XLA sorts the whole row on a CPU if only a slice of the result is used. A
  single barrier around both results would crash XLA's compiler under `pmap`.

  Returns:
    The C = `count` largest sums [B, C], descending, and the indices w and i of each, int32 [B, C].
  """
  batch, rows, width = x_BWX.shape
  block = _block_size(rows, width, count)
  if block == 1:
    sums_BX = add_terms(x_BWX, terms).reshape(batch, -1)
    values_BC, index_BC = map(
      jax.lax.optimization_barrier, jax.lax.top_k(sums_BX, count)
    )
    return values_BC, index_BC // width, index_BC % width
  blocks = -(-width // block)
  x_BWX = pad_axis(x_BWX, 2, blocks * block, -jnp.inf)
  x_BMX = x_BWX.reshape(batch, -1, block)
  maxima_BWM = add_terms(jnp.max(x_BMX, axis=-1).reshape(batch, rows, blocks), terms)
  _, chosen_BC = top_k(maxima_BWM.reshape(batch, -1), count)
  # Sort the selected blocks by index, so that ties keep their order.
  chosen_BC = jnp.sort(chosen_BC, axis=-1)
  row_BC = chosen_BC // blocks
  terms = [gather_beams(term_BW, row_BC) for term_BW in terms]
  values_BC, block_BC, index_BC = top_sums(gather_beams(x_BMX, chosen_BC), terms, count)
  return (
    values_BC,
    gather_beams(row_BC, block_BC),
    gather_beams(chosen_BC % blocks, block_BC) * block + index_BC,
  )


def add_terms(x_BWX, terms: Sequence[jax.Array]) -> jax.Array:
  """Returns x[b, w, i] plus each of the terms [b, w], added one after another."""
  for term_BW in terms:
    x_BWX = x_BWX + term_BW[:, :, None]
  return x_BWX


def log_softmax_terms(logits_BWN) -> tuple[jax.Array, list[jax.Array]]:
  """Returns float32 [B, W, N] and terms [B, W], which add up to the log-probabilities of logits.

  On a CPU, a beam search then need not write all log-probabilities to memory; the barriers keep XLA
  from doing so. Other platforms have fused kernels for log-softmax, and the terms are 0.
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
  """Returns the block size for `top_sums`; 1 if the rows should not be split into blocks.

  With the ideal size, the number of maxima, rows · width / size, equals the number of candidates in
  the selected blocks, count · size. A size that divides the width needs no padding and is
  preferred. Any other size must be at least `count`. If -inf is among the largest numbers, the
  first block then has enough of them, so that padding is never selected.
  """
  ideal = min(math.sqrt(rows * width / count), width)
  if ideal < 8:
    return 1
  candidates = range(math.ceil(ideal / 2), min(math.floor(ideal * 2), width) + 1)
  sizes = [size for size in candidates if width % size == 0]
  sizes = sizes or [size for size in candidates if size >= count]
  return min(sizes, key=lambda size: abs(math.log(size / ideal)), default=1)


def gather_beams(leaf, origin_BW) -> jax.Array:
  """Gathers along axis 1 of [B, W, ...]: the result at [b, w] is leaf[b, origin[b, w]]."""
  return jnp.take_along_axis(
    leaf, origin_BW.reshape(*origin_BW.shape, *[1] * (leaf.ndim - 2)), axis=1
  )


def where_rows(condition_B, yes, no) -> Any:
  """Returns the rows [b, ...] of the pytree `yes` where the condition is True, else of `no`."""
  where = jax.vmap(jnp.where)
  return jax.tree.map(lambda one, other: where(condition_B, one, other), yes, no)
