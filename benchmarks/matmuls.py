"""Times the matrix products of a training step, each compiled separately, in XLA and in NumPy.

  python benchmarks/matmuls.py --size=base

Their sum is roughly a lower bound for the time of a training step on this machine: the time of the
products in sequence, without any other work. NumPy gets contiguous factors, for which its BLAS is
fastest.
"""

import collections
import math
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from absl import app, flags

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from side_by_side import machine
from this_project import make_training_step_benchmark, packed_batch, parts_of_update
from workload import ON_A_CPU, Workload

_SIZE = flags.DEFINE_enum('size', 'base', list(ON_A_CPU), 'The model size.')
_RUNS = flags.DEFINE_integer(
  'runs', 7, 'Timed runs of each product, and of the training step.'
)


class Matmul(NamedTuple):
  """A matrix product, or a batch of them: [batch, rows, inner] · [batch, inner, columns].

  Attributes:
    left, right: shapes of the factors.
    dimensions: contracting and batch dimensions, as for `jax.lax.dot_general`.
  """

  left: tuple[int, ...]
  right: tuple[int, ...]
  dimensions: tuple

  @property
  def sizes(self) -> tuple[int, int, int, int]:
    """The batch, the rows, the inner dimension and the columns."""
    (inner, _), (batched, _) = self.dimensions
    batch = math.prod(self.left[axis] for axis in batched)
    contracted = math.prod(self.left[axis] for axis in inner)
    return (
      batch,
      math.prod(self.left) // batch // contracted,
      contracted,
      math.prod(self.right) // batch // contracted,
    )

  @property
  def flops(self) -> int:
    """Floating-point operations, two for each multiplication."""
    return 2 * math.prod(self.sizes)

  def part(self, work: Workload) -> str:
    """The part of the model that the product belongs to."""
    if work.vocabulary_size in self.sizes:
      return 'output layer and loss'
    if self.sizes[0] > 1:
      return 'scores and weighted sums of attention'
    # The first of three axes is the rows of a batch; another axis may have the same size.
    sizes = [
      size for shape in (self.left, self.right) for size in shape[len(shape) > 2 :]
    ]
    return 'feed-forward' if work.model.ff_dim in sizes else 'projections of attention'


def matmuls_of(jaxpr, times: int = 1) -> collections.Counter:
  """Counts the matrix products of a traced function, in a loop for each iteration."""
  found = collections.Counter()
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      left, right = (value.aval.shape for value in equation.invars)
      found[Matmul(left, right, equation.params['dimension_numbers'])] += times
    elif equation.primitive.name == 'cond':  # The first branch is the CPU's.
      found += matmuls_of(equation.params['branches'][0].jaxpr, times)
    else:
      turns = (
        equation.params.get('length', 1) if equation.primitive.name == 'scan' else 1
      )
      for inner in jax.tree.leaves(list(equation.params.values())):
        if hasattr(getattr(inner, 'jaxpr', inner), 'eqns'):
          found += matmuls_of(getattr(inner, 'jaxpr', inner), times * turns)
  return found


def median_seconds(run) -> float:
  """Returns the median time of several runs, after an untimed one."""
  run()
  seconds = []
  for _ in range(_RUNS.value):
    started = time.perf_counter()
    run()
    seconds.append(time.perf_counter() - started)
  return statistics.median(seconds)


def seconds_in_xla(product: Matmul, rng) -> float:
  """Returns the time of a product that is compiled separately."""
  left, right = (
    jax.numpy.asarray(rng.standard_normal(shape, np.float32))
    for shape in (product.left, product.right)
  )
  multiply = jax.jit(lambda x, y: jax.lax.dot_general(x, y, product.dimensions))
  return median_seconds(lambda: multiply(left, right).block_until_ready())


def seconds_in_numpy(product: Matmul, rng) -> float:
  """Returns the time of a product of the same sizes with contiguous factors."""
  batch, rows, inner, columns = product.sizes
  left = np.squeeze(rng.standard_normal((batch, rows, inner), np.float32))
  right = np.squeeze(rng.standard_normal((batch, inner, columns), np.float32))
  out = left @ right
  return median_seconds(lambda: np.matmul(left, right, out=out))


def main(_):
  """Prints a table of the parts of a training step."""
  work = ON_A_CPU[_SIZE.value]
  print(f'{machine("jax", "numpy")}\n\n{_SIZE.value}: {work}\n', flush=True)
  # The training step comes first: NumPy's threads keep a core busy for a while after a product.
  seconds = median_seconds(make_training_step_benchmark(work))
  init, step = parts_of_update(work)
  traced = jax.make_jaxpr(step)(jax.eval_shape(init), packed_batch(work))
  rng = np.random.default_rng(0)
  sums = collections.defaultdict(lambda: [0, 0, 0.0, 0.0])
  for product, count in matmuls_of(traced.jaxpr).items():
    measured = (
      1,
      product.flops,
      seconds_in_xla(product, rng),
      seconds_in_numpy(product, rng),
    )
    for name in (product.part(work), 'all products'):
      sums[name] = [
        total + count * cost for total, cost in zip(sums[name], measured, strict=True)
      ]
  print(
    '| part | products | GFLOP | seconds, alone in XLA | GFLOP/s | seconds in NumPy | '
    'GFLOP/s |\n'
    '| --- | --- | --- | --- | --- | --- | --- |'
  )
  for name, (count, flops, xla, numpy) in sorted(
    sums.items(), key=lambda item: item[1][1]
  ):
    print(
      f'| {name} | {count} | {flops / 1e9:.0f} | {xla:.2f} | {flops / xla / 1e9:.0f} | '
      f'{numpy:.2f} | {flops / numpy / 1e9:.0f} |'
    )
  flops = sums['all products'][1]
  print(
    f'| training step | | {flops / 1e9:.0f} | {seconds:.2f} | {flops / seconds / 1e9:.0f} | | |'
  )


if __name__ == '__main__':
  app.run(main)
