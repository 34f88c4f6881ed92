"""The kernels of a decoding step: an iteration of a search's loop, a token for each sentence."""

import collections
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.compiled.hlo import Program
from benchmarks.gpu_costs import estimate, kernels
from benchmarks.gpu_costs.chips import Chip
from benchmarks.gpu_costs.kernels import Kernel


def read(program: Program) -> list[Kernel]:
  """Returns the kernels of an iteration of the entry's largest loop, and of its condition."""
  steps = []
  for instruction in program.computations[program.entry]:
    if instruction.opcode == 'while':
      parts = re.findall(r'(?:condition|body)=%?([\w.\-]+)', instruction.rest)
      found = [kernels.read(program._replace(entry=name)) for name in parts]
      steps.append([kernel for part in found for kernel in part])
  return max(steps, key=len, default=[])


def cost(found: Sequence[Kernel], chip: Chip) -> dict[str, Any]:
  """Returns the costs of a decoding step for JSON: kernels, kinds, bytes and estimated seconds."""
  kinds = collections.Counter()
  for kernel in found:
    kinds[kernel.kind] += kernel.count
  return {
    'kernels': sum(kernel.count for kernel in found),
    'kinds': dict(kinds.most_common()),
    'moved': sum(kernel.count * kernel.moved for kernel in found),
    'seconds': sum(estimate.seconds_of(kernel, chip) for kernel in found),
  }
