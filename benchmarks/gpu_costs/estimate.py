"""The estimated time of a compiled training step on GPUs.

A kernel takes as long as the slowest of memory traffic, matrix products and integer operations,
plus its launch time. The fraction of the data sheet's bandwidth and peak that
kernels reach was measured once on an H100, and is assumed to be the same on other chips. cuDNN's
attention is much slower than its memory traffic and products; its factor was also measured there.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.compiled import hlo
from benchmarks.compiled.training_step import Compiled, totals
from benchmarks.gpu_costs import kernels
from benchmarks.gpu_costs.chips import Chip
from benchmarks.gpu_costs.kernels import Kernel

# Measured on an H100 with the base model, 256 rows of 256: benchmarks/README.md, "NVIDIA H100".
BANDWIDTH_REACHED = 0.895
PEAK_REACHED = 0.647
LAUNCH_SECONDS = 2e-6
ATTENTION_FACTOR = 3.0
# 32-bit additions, logical operations and shifts of a streaming multiprocessor per clock, for
# compute capability 7.0 to 9.0: CUDA C++ Programming Guide, "Arithmetic Instructions".
INTEGERS_PER_CLOCK = 64
# The fraction of the memory that JAX allocates unless XLA_PYTHON_CLIENT_MEM_FRACTION is set.
MEMORY_FRACTION = 0.75

_ATTENTION = '__cudnn$fmha'


class KernelGroup(NamedTuple):
  """Kernels of one kind or place: their seconds, number and bytes per training step."""

  seconds: float
  kernels: int
  moved: int


def seconds_of(kernel: Kernel, chip: Chip) -> float:
  """Returns the estimated seconds of a kernel per training step, over all of its runs."""
  memory = kernel.moved / (BANDWIDTH_REACHED * chip.bandwidth)
  products = kernel.flops / (PEAK_REACHED * chip.peak_flops)
  rate = INTEGERS_PER_CLOCK * chip.cores * chip.clock_ghz * 1e9
  integers = kernel.integers / rate
  factor = ATTENTION_FACTOR if kernel.kind.startswith(_ATTENTION) else 1
  return kernel.count * (factor * max(memory, products, integers) + LAUNCH_SECONDS)


def group_kernels(
  found: Sequence[Kernel], chip: Chip, by: str = 'kind'
) -> dict[str, KernelGroup]:
  """Returns the kernels by `kind` or `place`, the slowest first."""
  grouped = {}
  for kernel in found:
    key = kernel.kind if by == 'kind' else shortened_place(kernel.place)
    before = grouped.get(key, KernelGroup(0.0, 0, 0))
    grouped[key] = KernelGroup(
      before.seconds + seconds_of(kernel, chip),
      before.kernels + kernel.count,
      before.moved + kernel.count * kernel.moved,
    )
  return dict(sorted(grouped.items(), key=lambda item: -item[1].seconds))


def shortened_place(place: str) -> str:
  """Returns a place without layer numbers and without the prefix before the model's name."""
  place = re.sub(r'_\d+', '', place)
  return re.sub(r'^.*?(\w+\.(?:encode|decode)|while/body|train_step\))', r'\1', place)


def cost(compiled: Compiled, chip: Chip, per_host: int) -> dict[str, Any]:
  """Returns the costs of a training step on one chip, for JSON; the seconds are estimates.

  Args:
    compiled: a training step that fits into the memory.
    chip: the chip for which it was compiled.
    per_host: chips per host. A collective among chips of several hosts uses the network.
  """
  program = hlo.parse(compiled.text)
  found = kernels.read(program)
  sent = hlo.collectives(program, compiled.facts['chips'])
  seconds = {'products': 0.0, 'attention': 0.0, 'other': 0.0, 'collectives': 0.0}
  for kernel in found:
    is_attention = kernel.kind.startswith(_ATTENTION)
    part = 'attention' if is_attention else 'products' if kernel.flops else 'other'
    seconds[part] += seconds_of(kernel, chip)
  for collective in sent:
    hosts = {number // per_host for number in collective.group}
    rate = chip.link if len(hosts) == 1 else chip.network
    seconds['collectives'] += collective.sent / rate
  products = sum(kernel.count * kernel.flops for kernel in found)
  total = sum(seconds.values())
  return {
    **compiled.facts,
    'memory': compiled.memory,
    'fits': compiled.memory['total'] <= MEMORY_FRACTION * chip.memory,
    'kernels': sum(kernel.count for kernel in found),
    'moved': sum(kernel.count * kernel.moved for kernel in found),
    'collectives': totals(sent),
    'flops': {'model': compiled.flops, 'products': products},
    'seconds': {**seconds, 'total': total},
    'utilization': compiled.flops / chip.peak_flops / total,
  }
