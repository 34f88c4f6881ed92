"""Measures the speedup of matrix products in bfloat16 over float32 on a CPU."""

import timeit

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

_SIZE = 512
_RUNS = 5
_WORTH_A_LINE = 1.5
_WIDE = 256  # At 128, a training step is at most 20% faster (benchmarks/README.md).


def advise_bfloat16(model):
  """Logs a hint to set `model.dtype=bfloat16` for a new run, if it is faster on this CPU.

  `model` is the run's `config.model`.
  """
  if (
    jax.default_backend() != 'cpu'
    or model.dtype == 'bfloat16'
    or model.model_dim < _WIDE
  ):
    return
  speedup = bfloat16_speedup()
  if speedup > _WORTH_A_LINE:
    logging.info(
      'this CPU multiplies matrices %.1f times as fast in bfloat16 as in float32; training may '
      'be faster with --config.model.dtype=bfloat16 (docs/configuration.md)',
      speedup,
    )


def bfloat16_speedup() -> float:
  """Returns the time of a matrix product in float32 divided by its time in bfloat16.

  The measurement takes a few tenths of a second. The speedup depends on the CPU and on the version
  of JAX: with AMX or AVX512-BF16 instructions, bfloat16 is 2 to 4 times as fast in JAX 0.12, and no
  faster in JAX 0.10.
  """
  product = jax.jit(jnp.matmul)
  factors = [jnp.ones((_SIZE, _SIZE), dtype) for dtype in (jnp.float32, jnp.bfloat16)]

  def seconds(factor):
    return timeit.timeit(lambda: product(factor, factor).block_until_ready(), number=1)

  # The first run also compiles. Runs alternate, so that other load slows both alike.
  times = [list(map(seconds, factors)) for _ in range(1 + _RUNS)]
  single, half = np.min(times, axis=0)
  return single / half
