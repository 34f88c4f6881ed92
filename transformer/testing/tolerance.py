"""How far rounding takes two ways to compute a number apart, on any processor."""

import jax.numpy as jnp


def rounding(terms: int, size: float, dtype=jnp.float32) -> float:
  """Returns a difference that rounding explains; a larger one has another cause.

  Each of n additions rounds its sum by at most eps / 2. Errors of both signs mostly cancel: the
  error of the result grows as √n (Higham and Mary, 2019). Either way to compute it has its own
  error, and processors and compilers add in an order of their own. Four times that is for bad luck.

  Args:
    terms: the number that is added up on the longest way from an input to the result, over all
      sums one after another.
    size: the largest sum of absolute values; factors after it count, too.
  """
  return 4 * float(jnp.finfo(dtype).eps) * terms**0.5 * size
