"""What an update will cost on TPUs that are not at hand, as their compiler sees it."""

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
from transformer.training import hlo
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh
from transformer.training.preflight import needs_of
from transformer.training.programs import lower_train_step, state_like
from transformer.training.run_directory import commit

# Slices that can be had, smallest first, and how many chips they are: v5e is a plane of at
# most 256, v5p a block.
TOPOLOGIES = {
    name: math.prod(map(int, name.partition(':')[2].split('x')))
    for name in ('v5e:2x2', 'v5e:2x4', 'v5e:4x4', 'v5e:4x8', 'v5e:8x8', 'v5e:8x16', 'v5e:16x16',
                 'v5p:2x2x1', 'v5p:2x2x2', 'v5p:2x2x4', 'v5p:2x4x4', 'v5p:4x4x4', 'v5p:4x4x8',
                 'v5p:4x8x8', 'v5p:8x8x8', 'v5p:8x8x16')}


class Chip(NamedTuple):
  """What a chip has, besides its peak.

  Attributes:
    memory: bytes.
    clock: Hz; what its peak is at, by the multipliers that it has.
    wire: bytes a second that it can send, over all its links.
  """

  memory: float
  clock: float
  wire: float


# By JAX's `device_kind`. Memory and links are those of https://cloud.google.com/tpu/docs/v5e
# (16 GB, 1,600 Gbit/s) and /v5p (95 GB, 4,800 Gbit/s); a v5e multiplies 4 × 128 × 128 numbers
# a cycle, a v5p 8 × 128 × 128.
CHIPS = {'TPU v5 lite': Chip(16e9, 1.50e9, 200e9), 'TPU v5': Chip(95e9, 1.75e9, 600e9)}
# What libtpu would ask a machine that has TPUs, and complain that it cannot; and that it may be
# loaded by several processes, none of which has TPUs to fight over.
_NO_MACHINE = {'TPU_SKIP_MDS_QUERY': '1', 'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
               'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_MIN_LOG_LEVEL': '3',
               'TPU_STDERR_LOG_LEVEL': '3', 'ALLOW_MULTIPLE_LIBTPU_LOAD': '1'}


def devices_of(topology: str) -> list[Any]:
  """The chips of a slice, described to the compiler; no such machine need exist.

  Raises:
    UserError: there is no such slice, or no compiler for it.
  """
  if topology not in TOPOLOGIES:
    raise UserError(f'--topology must be one of {", ".join(TOPOLOGIES)}; got {topology!r}')
  if importlib.util.find_spec('libtpu') is None:
    raise UserError('--topology needs the compiler for TPUs, libtpu, which is not installed; '
                    'install it with: pip install "jax[tpu]"')
  for name, value in _NO_MACHINE.items():
    os.environ.setdefault(name, value)
  jax.config.update('jax_platforms', 'cpu')  # A TPU that is here has no part in it.
  # What is compiled for devices that are not here can be kept, but not be loaded.
  jax.config.update('jax_enable_compilation_cache', False)
  from jax.experimental import topologies  # Asks for libtpu at once.
  return list(topologies.get_topology_desc(platform='tpu', topology_name=topology).devices)


def meshes(chips: int, rows: int, heads: int) -> Iterator[MeshConfig]:
  """The meshes that are worth a try: rows over all chips, or heads over 2, 4 or 8 of them.

  With rows over all chips, parameters are on each, or split over 16.

  Args:
    chips: in all.
    rows: rows that go through the model at a time; those meshes are left out that cannot
      split them.
    heads: attention heads; the same.
  """
  for tensor in (1, 2, 4, 8):
    ways = chips // tensor
    if chips % tensor or heads % tensor or rows % max(ways, 1):
      continue
    yield MeshConfig(data=ways, tensor=tensor)
    # Parameters that too many chips share are gathered in crumbs.
    if tensor == 1 and (fsdp := min(ways, 16)) > 1 and ways % fsdp == 0:
      yield MeshConfig(data=ways // fsdp, fsdp=fsdp)


def estimate(settings, devices: Sequence[Any]) -> dict[str, Any]:
  """Compiles the update of a config for devices, and says what it costs.

  Args:
    settings: a `transformer.config.Config`, its mesh included.
    devices: from `devices_of`.

  Returns:
    What a JSON file can hold. Bytes, FLOPs and seconds are those of one chip in one update:
    `memory`, by what it is for, None if the compiler refuses for want of it; `collectives`,
    by kind: how many, `bytes` (the whole array that each leaves or takes, `hlo.Collective`)
    and what is `sent`; `flops`, the `model`'s by `train_flops` and those that `xla` counts,
    with each loop's inside once; `seconds`, of arithmetic and on the wire, both estimates;
    `utilisation`, the model's FLOPs in their sum, as a share of the peak; and
    `optimal_seconds` as the compiler has it, which is below 0 and of no use.

  Raises:
    UserError: the mesh does not fit the devices or the rows.
  """
  rows = settings.train.tokens_per_batch // settings.data.max_length
  mesh = make_mesh(settings.mesh, rows // settings.optimizer.accumulate, devices)
  model = Transformer(settings.model, settings.data.vocabulary_size)
  state = state_like(settings, model, mesh)
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
    compiled = lower_train_step(settings, model, state, mesh, shape).compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    return {**result, 'memory': None, 'compile_seconds': time.monotonic() - start}
  result['compile_seconds'] = time.monotonic() - start
  flops = train_flops(settings.model, settings.data.vocabulary_size)
  return {**result, **_costs(compiled, state, devices,
                             sum(flops) * settings.train.tokens_per_batch / len(devices))}


def _costs(compiled, state, devices: Sequence[Any], flops: float) -> dict[str, Any]:
  """What a compiled update says of itself, for an arithmetic of so many FLOPs a chip."""
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
      'optimal_seconds': compiled.cost_analysis().get('optimal_seconds'),
      'seconds': seconds, 'utilisation': flops / peak / sum(seconds.values())}


def fits(result: dict[str, Any]) -> bool:
  """Whether a chip has the memory that an update needs."""
  memory = CHIPS[result['device_kind']].memory
  return result['memory'] is not None and result['memory']['total'] <= memory


def best(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
  """Of what `estimate` said of several meshes, the quickest that fits into memory."""
  return min(filter(fits, results), key=lambda each: sum(each['seconds'].values()), default=None)
