"""Estimates the cost of a training step on TPUs with their compiler; no TPU is needed."""

import importlib.metadata
import importlib.util
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.compiled import hlo
from benchmarks.compiled.training_step import (
  compile_training_step,
  configure_offline_compilation,
  totals,
)
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.flops import peak_flops

# The slices that Google offers, smallest first, and their numbers of chips. A v5e slice is a plane
# of at most 256 chips, a v5p slice a block.
TOPOLOGIES = {
  name: math.prod(map(int, name.partition(':')[2].split('x')))
  for name in (
    'v5e:2x2',
    'v5e:2x4',
    'v5e:4x4',
    'v5e:4x8',
    'v5e:8x8',
    'v5e:8x16',
    'v5e:16x16',
    'v5p:2x2x1',
    'v5p:2x2x2',
    'v5p:2x2x4',
    'v5p:2x4x4',
    'v5p:4x4x4',
    'v5p:4x4x8',
    'v5p:4x8x8',
    'v5p:8x8x8',
    'v5p:8x8x16',
  )
}


class Chip(NamedTuple):
  """The properties of a chip, except its peak FLOP/s."""

  memory: float  # Bytes.
  clock: float  # In Hz, at which its multipliers reach the peak.
  link_bandwidth: float  # Bytes per second that all its links can send.


# By JAX's `device_kind`. Memory and links are from https://cloud.google.com/tpu/docs/v5e
# (16 GB, 1,600 Gbit/s) and /v5p (95 GB, 4,800 Gbit/s); a v5e multiplies 4 × 128 × 128 numbers
# per cycle, a v5p 8 × 128 × 128.
CHIPS = {'TPU v5 lite': Chip(16e9, 1.50e9, 200e9), 'TPU v5': Chip(95e9, 1.75e9, 600e9)}
# Without these variables, libtpu looks for the TPUs of this machine and prints errors. Several
# processes may load libtpu, since none of them uses TPUs.
_NO_MACHINE = {
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_MIN_LOG_LEVEL': '3',
  'TPU_STDERR_LOG_LEVEL': '3',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
}


def devices_of(topology: str) -> list[Any]:
  """Returns descriptions of a slice's chips for the compiler."""
  if topology not in TOPOLOGIES:
    raise UserError(
      f'--topology must be one of {", ".join(TOPOLOGIES)}; got {topology!r}'
    )
  if importlib.util.find_spec('libtpu') is None:
    raise UserError(
      '--topology needs the compiler for TPUs, libtpu, which is not installed; '
      'install it with: pip install "jax[tpu]"'
    )
  for name, value in _NO_MACHINE.items():
    os.environ.setdefault(name, value)
  configure_offline_compilation()
  from jax.experimental import topologies  # The import itself needs libtpu.

  return list(
    topologies.get_topology_desc(platform='tpu', topology_name=topology).devices
  )


def training_step_cost(settings: Config, devices: Sequence[Any]) -> dict[str, Any]:
  """Compiles the training step of a config for devices; returns its costs on one chip, for JSON.

  `memory` is None if the compiler reports too little memory; `flops.xla` counts a loop's body
  once; both `seconds` are estimates, and `utilization` is of their sum.
  """
  compiled = compile_training_step(settings, devices)
  result = {
    **compiled.facts,
    'libtpu': importlib.metadata.version('libtpu'),
    'memory': compiled.memory,
  }
  if not compiled.text:
    return result
  program = hlo.parse(compiled.text)
  kind = compiled.facts['device_kind']
  chip = CHIPS[kind]
  collectives = totals(hlo.collectives(program, len(devices)))
  sent = sum(total['sent'] for total in collectives.values())
  seconds = {
    'compute': hlo.cycles(program) / chip.clock,
    'communication': sent / chip.link_bandwidth,
  }
  return {
    **result,
    'collectives': collectives,
    'flops': {'model': compiled.flops, 'xla': compiled.xla_flops},
    'seconds': seconds,
    'utilization': compiled.flops / peak_flops(kind) / sum(seconds.values()),
  }


def fits(result: dict[str, Any]) -> bool:
  """Returns whether a training step fits into the memory of a chip."""
  memory = CHIPS[result['device_kind']].memory
  return result['memory'] is not None and result['memory']['total'] <= memory
