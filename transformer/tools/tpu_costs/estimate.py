"""Estimates the cost of an update on TPUs by their compiler; no TPU is needed."""

import importlib.metadata
import importlib.util
import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from absl import logging

from transformer.errors import UserError
from transformer.model.flops import peak_flops, train_flops
from transformer.model.transformer import Transformer
from transformer.runs.run_directory import commit
from transformer.tools.tpu_costs import hlo
from transformer.training.compilation import lower_train_step, make_setup
from transformer.training.config import MeshConfig
from transformer.training.memory_check import needs_of
from transformer.training.mesh import make_mesh
from transformer.training.objective import make_objective

# The slices that Google offers, smallest first, and their numbers of chips. A v5e slice is a plane
# of at most 256 chips, a v5p slice a block.
TOPOLOGIES = {
    name: math.prod(map(int, name.partition(':')[2].split('x')))
    for name in ('v5e:2x2', 'v5e:2x4', 'v5e:4x4', 'v5e:4x8', 'v5e:8x8', 'v5e:8x16', 'v5e:16x16',
                 'v5p:2x2x1', 'v5p:2x2x2', 'v5p:2x2x4', 'v5p:2x4x4', 'v5p:4x4x4', 'v5p:4x4x8',
                 'v5p:4x8x8', 'v5p:8x8x8', 'v5p:8x8x16')}


class Chip(NamedTuple):
  """The properties of a chip, besides its peak FLOPs.

  Attributes:
    memory: its size in bytes.
    clock: the clock in Hz at which its multipliers reach the peak.
    wire: the bytes a second that all its links can send.
  """

  memory: float
  clock: float
  wire: float


# By JAX's `device_kind`. Memory and links are those of https://cloud.google.com/tpu/docs/v5e
# (16 GB, 1,600 Gbit/s) and /v5p (95 GB, 4,800 Gbit/s); a v5e multiplies 4 × 128 × 128 numbers
# a cycle, a v5p 8 × 128 × 128.
CHIPS = {'TPU v5 lite': Chip(16e9, 1.50e9, 200e9), 'TPU v5': Chip(95e9, 1.75e9, 600e9)}
# Without these variables, libtpu looks for the TPUs of this machine and prints errors. Several
# processes may load libtpu, since none of them uses TPUs.
_NO_MACHINE = {'TPU_SKIP_MDS_QUERY': '1', 'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
               'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_MIN_LOG_LEVEL': '3',
               'TPU_STDERR_LOG_LEVEL': '3', 'ALLOW_MULTIPLE_LIBTPU_LOAD': '1'}


def devices_of(topology: str) -> list[Any]:
  """Returns descriptions of a slice's chips for the compiler.

  Raises:
    UserError: there is no such slice, or the compiler is not installed.
  """
  if topology not in TOPOLOGIES:
    raise UserError(f'--topology must be one of {", ".join(TOPOLOGIES)}; got {topology!r}')
  if importlib.util.find_spec('libtpu') is None:
    raise UserError('--topology needs the compiler for TPUs, libtpu, which is not installed; '
                    'install it with: pip install "jax[tpu]"')
  for name, value in _NO_MACHINE.items():
    os.environ.setdefault(name, value)
  jax.config.update('jax_platforms', 'cpu')  # Does not use a TPU of this machine.
  # Programs for devices of another machine could be stored in the cache, but not loaded.
  jax.config.update('jax_enable_compilation_cache', False)
  from jax.experimental import topologies  # The import itself needs libtpu.
  return list(topologies.get_topology_desc(platform='tpu', topology_name=topology).devices)


def candidate_meshes(chips: int, rows: int, heads: int) -> Iterator[MeshConfig]:
  """Yields promising meshes: rows split over all chips, or heads split over 2, 4 or 8 of them.

  If rows are split over all chips, a second mesh also splits the parameters over up to 16 chips.
  Meshes that cannot split the rows or heads evenly are left out.

  Args:
    chips: the number of chips.
    rows: the rows that go through the model at a time.
    heads: the number of attention heads.
  """
  for tensor in (1, 2, 4, 8):
    ways = chips // tensor
    if chips % tensor or heads % tensor or rows % max(ways, 1):
      continue
    yield MeshConfig(data=ways, tensor=tensor)
    # Over more chips, the parts of parameters would be too small to gather efficiently.
    if tensor == 1 and (fsdp := min(ways, 16)) > 1 and ways % fsdp == 0:
      yield MeshConfig(data=ways // fsdp, fsdp=fsdp)


def update_cost(settings, devices: Sequence[Any]) -> dict[str, Any]:
  """Compiles the update of a config for devices, and returns its costs.

  Args:
    settings: a `transformer.config.Config`, its mesh included.
    devices: from `devices_of`.

  Returns:
    Values for a JSON file, for one chip and one update:
      memory: bytes by use; None if the compiler says that memory does not suffice.
      collectives: by kind, `count`, `bytes` (see `hlo.Collective.size`) and bytes `sent`.
      unknown_loops: see `hlo.Program`.
      flops: `model` by `train_flops`, and `xla`, which counts a loop's body once.
      seconds: `arithmetic` and `wire`, both estimates.
      utilisation: the model's FLOPs in the sum of these seconds, as a share of the peak.
      chips, mesh, compile_seconds and others: what was compiled, and how long that took.

  Raises:
    UserError: the mesh does not fit the devices or the rows.
  """
  rows = settings.train.tokens_per_batch // settings.data.max_length
  mesh = make_mesh(settings.mesh, settings.rows_at_once, devices)
  model = Transformer(settings.model, settings.data.vocabulary_size,
                      settings.data.source_vocabulary_size)
  objective = make_objective(settings)(None)
  setup = make_setup(settings, model, mesh, objective)
  shape = rows, settings.data.max_length, settings.data.max_length
  named = ', '.join(f'{axis}={size}' for axis, size in mesh.shape.items())
  logging.info('compiling for %d chips, %s', len(devices), named)
  result = {
      'chips': len(devices), 'device_kind': devices[0].device_kind, 'mesh': dict(mesh.shape),
      'rows': rows, 'max_length': settings.data.max_length,
      'tokens_per_batch': settings.train.tokens_per_batch, 'dtype': settings.model.dtype,
      'commit': commit(), 'jax': jax.__version__,
      'libtpu': importlib.metadata.version('libtpu')}
  start = time.monotonic()
  try:
    compiled = lower_train_step(settings, model, setup, shape).compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    return {**result, 'memory': None, 'compile_seconds': time.monotonic() - start}
  result['compile_seconds'] = time.monotonic() - start
  flops = train_flops(settings.model, settings.data.vocabulary_size,
                      objective.passes)
  return {**result, **_costs(compiled, setup.state, devices,
                             sum(flops) * settings.train.tokens_per_batch / len(devices))}


def _costs(compiled, state, devices: Sequence[Any], flops: float) -> dict[str, Any]:
  """Returns the costs of a compiled update whose model takes `flops` on each chip."""
  need, = needs_of(state, ('update', compiled, state))
  code = compiled.memory_analysis().generated_code_size_in_bytes
  program = hlo.read(compiled.as_text(), len(devices))
  chip, peak = CHIPS[devices[0].device_kind], peak_flops(devices[0].device_kind)
  collectives = {}
  for kind in hlo.KINDS:
    found = [each for each in program.collectives if each.kind == kind]
    collectives[kind] = {'count': sum(each.count for each in found),
                         'bytes': sum(each.count * each.size for each in found),
                         'sent': sum(each.sent for each in found)}
  sent = sum(each['sent'] for each in collectives.values())
  seconds = {'arithmetic': program.cycles / chip.clock, 'wire': sent / chip.wire}
  return {
      'memory': {'arguments': need.arguments, 'outputs': need.outputs,
                 'temporaries': need.temporaries, 'code': code, 'total': need.total + code},
      'collectives': collectives, 'unknown_loops': program.unknown_loops,
      'flops': {'model': flops, 'xla': compiled.cost_analysis()['flops']},
      'seconds': seconds, 'utilisation': flops / peak / sum(seconds.values())}


def fits(result: dict[str, Any]) -> bool:
  """Returns whether an update fits into the memory of a chip."""
  memory = CHIPS[result['device_kind']].memory
  return result['memory'] is not None and result['memory']['total'] <= memory


def best(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
  """Returns the result of the fastest mesh that fits into memory; None if none fits."""
  return min(filter(fits, results), key=lambda each: sum(each['seconds'].values()), default=None)
