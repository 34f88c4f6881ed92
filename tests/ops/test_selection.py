"""The largest numbers of rows are found block by block, with their ties."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops.selection import top_k, top_sums


@pytest.mark.parametrize(
  'shape', [(1, 1), (1, 30_000), (3, 5), (5, 127), (4, 1000), (5, 2003), (97, 11)]
)
@pytest.mark.parametrize('count', [1, 2, 10])
def test_the_top_sums_match_a_full_sort(shape, count):
  rows, width = shape
  if count > rows * width:
    return
  rng = np.random.default_rng(width)
  x = rng.integers(0, 20, (4, *shape)).astype(np.float32)
  # Rows differ by integers and by so little that sums are rounded to the same number.
  y = rng.integers(0, 3, (4, rows)).astype(np.float32)
  x[1] = 1e-8 * rng.normal(size=shape)
  y[1] += 1.0
  x[2, :, : max(width // 2, 1)] = -np.inf
  y[2, rows // 2 :] = -np.inf
  y[3] = -np.inf
  flat = jnp.asarray(x + y[:, :, None]).reshape(4, -1)
  sums, where = jax.lax.top_k(flat, count)
  chex.assert_trees_all_equal(
    jax.jit(top_sums, static_argnums=2)(x, [y], count),
    (sums, where // width, where % width),
  )
  chex.assert_trees_all_equal(
    jax.jit(top_k, static_argnums=1)(flat, count), (sums, where)
  )


@pytest.mark.parametrize(
  'shape, count',
  [
    ((70, 131), 140),
    ((80, 149), 160),
    ((75, 1021), 150),
    ((1, 1021), 16),
    ((4, 1021), 16),
  ],
)
def test_padding_is_never_chosen_where_few_sums_are_possible(shape, count):
  rows, width = shape
  x, y = np.full((4, *shape), -np.inf, np.float32), np.zeros((4, rows), np.float32)
  x[0, 0, 0] = x[1, -1, -1] = x[2, :, 7] = 1.0
  y[3, 1:] = -np.inf
  x[3, 0, width // 2 :] = 2.0
  sums, where = jax.lax.top_k(jnp.asarray(x + y[:, :, None]).reshape(4, -1), count)
  chex.assert_trees_all_equal(
    jax.jit(top_sums, static_argnums=2)(x, [y], count),
    (sums, where // width, where % width),
  )
