"""Estimates the cost of an update on TPUs by their compiler; no TPU is needed."""

import importlib.metadata
import importlib.util
import math
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from benchmarks.tpu_costs import hlo
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.flops import peak_flops, update_flops
from transformer.model.transformer import Transformer
from transformer.runs.run_directory import commit
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective
from transformer.training.update import make_update

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
  """The properties of a chip, besides its peak FLOPs."""

  memory: float  # Bytes.
  clock: float  # In Hz, at which its multipliers reach the peak.
  wire: float  # Bytes a second that all its links can send.


# By JAX's `device_kind`. Memory and links are those of https://cloud.google.com/tpu/docs/v5e
# (16 GB, 1,600 Gbit/s) and /v5p (95 GB, 4,800 Gbit/s); a v5e multiplies 4 × 128 × 128 numbers
# a cycle, a v5p 8 × 128 × 128.
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
  jax.config.update('jax_platforms', 'cpu')  # Does not use a TPU of this machine.
  # Programs for devices of another machine could be stored in the cache, but not loaded.
  jax.config.update('jax_enable_compilation_cache', False)
  from jax.experimental import topologies  # The import itself needs libtpu.

  return list(
    topologies.get_topology_desc(platform='tpu', topology_name=topology).devices
  )


def update_cost(settings: Config, devices: Sequence[Any]) -> dict[str, Any]:
  """Compiles the update of a config for devices, and returns its costs on one chip, for JSON.

  `memory` is None if the compiler says that it does not suffice; `flops.xla` counts a loop's body
  once; both `seconds` are estimates, and `utilisation` is of their sum.
  """
  data, tokens = settings.data, settings.train.tokens_per_batch
  rows = tokens // data.max_length
  mesh = make_mesh(settings.mesh, settings.rows_at_once, devices)
  model = Transformer(settings.model, data.vocabulary_size, data.source_vocabulary_size)
  objective = make_objective(settings, None)
  update = make_update(settings, model, mesh, objective)
  result = {
    'chips': len(devices),
    'device_kind': devices[0].device_kind,
    'mesh': dict(mesh.shape),
    'rows': rows,
    'max_length': data.max_length,
    'tokens_per_batch': tokens,
    'dtype': settings.model.dtype,
    'commit': commit(),
    'jax': jax.__version__,
    'libtpu': importlib.metadata.version('libtpu'),
  }
  start = time.monotonic()
  try:
    compiled = update.lower((rows, data.max_length, data.max_length)).compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    return {**result, 'memory': None, 'compile_seconds': time.monotonic() - start}
  result['compile_seconds'] = time.monotonic() - start
  flops = sum(update_flops(update.model, objective.passes) or [math.nan])
  return {**result, **_costs(compiled, devices, flops * tokens / len(devices))}


def _costs(compiled, devices: Sequence[Any], flops: float) -> dict[str, Any]:
  """Returns the costs of a compiled update whose model takes `flops` on each chip."""
  memory = compiled.memory_analysis()
  parts = {
    'arguments': memory.argument_size_in_bytes,
    # Some outputs take the memory of arguments.
    'outputs': memory.output_size_in_bytes - memory.alias_size_in_bytes,
    'temporaries': memory.temp_size_in_bytes,
    'code': memory.generated_code_size_in_bytes,
  }
  communications, cycles = hlo.read(compiled.as_text(), len(devices))
  chip, peak = CHIPS[devices[0].device_kind], peak_flops(devices[0].device_kind)
  collectives = {kind: {'count': 0, 'bytes': 0, 'sent': 0.0} for kind in hlo.KINDS}
  for collective in communications:
    total = collectives[collective.kind]
    total['count'] += collective.count
    total['bytes'] += collective.count * collective.size
    total['sent'] += collective.sent
  sent = sum(total['sent'] for total in collectives.values())
  seconds = {'arithmetic': cycles / chip.clock, 'wire': sent / chip.wire}
  return {
    'memory': {**parts, 'total': sum(parts.values())},
    'collectives': collectives,
    'flops': {'model': flops, 'xla': compiled.cost_analysis()['flops']},
    'seconds': seconds,
    'utilisation': flops / peak / sum(seconds.values()),
  }


def fits(result: dict[str, Any]) -> bool:
  """Returns whether an update fits into the memory of a chip."""
  memory = CHIPS[result['device_kind']].memory
  return result['memory'] is not None and result['memory']['total'] <= memory
