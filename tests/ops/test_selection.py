"""The largest numbers of rows are found block by block, with their ties."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops.selection import top_k


@pytest.mark.parametrize('width', [1, 7, 64, 127, 1000, 1024, 2003, 30_000])
@pytest.mark.parametrize('count', [1, 2, 10])
def test_the_largest_numbers_are_found_block_by_block_with_their_ties(width, count):
  if count > width:
    return
  rng = np.random.default_rng(width)
  # Few values make ties. Some rows have many or only impossible entries.
  x = rng.integers(0, 50, (5, width)).astype(np.float32)
  x[1] = rng.normal(size=width)
  x[2, :max(width // 2, 1)] = -np.inf
  x[3] = -np.inf
  wanted = jax.lax.top_k(jnp.asarray(x), count)
  chex.assert_trees_all_equal(jax.jit(top_k, static_argnums=1)(x, count),
                              tuple(wanted))
