"""The rounding difference between two ways to compute a number, on any processor."""

import jax.numpy as jnp


def rounding_tolerance(terms: int, size: float, dtype=jnp.float32) -> float:
  """Returns the maximum difference that rounding explains; a larger one has another cause.

  Each of n additions rounds its sum by at most eps / 2. Errors of both signs mostly cancel: the
  error of the result grows as √n (Higham and Mary, 2019). Both computations have a rounding error,
  and the order of additions depends on processor and compiler. The factor 4 is a safety margin.

  Args:
    terms: number of terms added on the longest path from an input to the result, over all
      consecutive sums.
    size: the largest sum of absolute values, including later factors.
  """
  return 4 * float(jnp.finfo(dtype).eps) * terms**0.5 * size
