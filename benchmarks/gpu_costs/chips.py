"""Kinds of GPUs, with the properties for their compiler and the estimates."""

import dataclasses
import importlib.util
import json
import os
import re
import typing
from pathlib import Path
from typing import Any

from benchmarks.compiled.training_step import configure_offline_compilation
from transformer.errors import UserError

CHIPS = Path(__file__).with_name('chips.json')
_TOPOLOGY = re.compile(r'(\d+)x(\d+)x(\d+)')


@dataclasses.dataclass(frozen=True)
class Chip:
  """A kind of GPU, according to its data sheet.

  Attributes:
    name: JAX's `device_kind`.
    source: the source of the numbers.
    peak_flops: dense 16-bit peak, in FLOP/s.
    bandwidth: of its memory, in bytes/s.
    memory: in bytes.
    link: bandwidth to the other GPUs of its host, in bytes/s.
    network: bandwidth of its host to other hosts, per GPU of the host, in bytes/s.
    compute_capability: such as `9.0`.
    cores: number of streaming multiprocessors.
    fpus_per_core: float32 units of each.
    clock_ghz: maximum clock.
    l2_cache: in bytes.
    shared_memory: bytes of a block, of a block that asks for more, and of a core.
  """

  name: str
  source: str
  peak_flops: float
  bandwidth: float
  memory: int
  link: float
  network: float
  compute_capability: str
  cores: int
  fpus_per_core: int
  clock_ghz: float
  l2_cache: int
  shared_memory: tuple[int, int, int]

  @property
  def target(self) -> str:
    """The description for XLA's compiler, a text of its `GpuTargetConfigProto`."""
    major, minor = self.compute_capability.split('.')
    of_block, at_most, of_core = self.shared_memory
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {of_block}
  shared_memory_per_block_optin: {at_most}
  shared_memory_per_core: {of_core}
  threads_per_core_limit: 2048
  core_count: {self.cores}
  fpus_per_core: {self.fpus_per_core}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {self.bandwidth:.0f}
  l2_cache_size: {self.l2_cache}
  clock_rate_ghz: {self.clock_ghz}
  device_memory_size: {self.memory}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
runtime_version {{ major: 12 minor: 9 patch: 0 }}
device_description_str: "{self.name}"
"""


def chip_of(name: str) -> Chip:
  """Returns a chip of chips.json by its name, or the chip of a JSON file with the same fields.

  Raises `UserError` if the chip does not exist, or a field is missing, unknown or of another type.
  """
  known = json.loads(CHIPS.read_text(encoding='utf-8'))
  if name in known:
    fields = known[name]
  elif not name.endswith('.json'):
    raise UserError(
      f'--chip must be one of {", ".join(known)}, or a JSON file that describes one as '
      f'benchmarks/gpu_costs/chips.json does; got {name!r}'
    )
  else:
    try:
      fields = json.loads(Path(name).expanduser().read_bytes())
    except (OSError, ValueError) as error:
      raise UserError(f'--chip={name} cannot be read: {error}') from error
  return _checked(name, fields)


def _checked(name: str, fields: Any) -> Chip:
  types = typing.get_type_hints(Chip)
  if not isinstance(fields, dict) or fields.keys() != types.keys():
    raise UserError(
      f'--chip={name} must contain an object with {", ".join(types)}, and nothing else'
    )
  for field, value in fields.items():
    if field == 'compute_capability':
      fits = bool(re.fullmatch(r'\d+\.\d+', str(value)))
    elif types[field] is str:
      fits = isinstance(value, str)
    elif field == 'shared_memory':
      fits = [type(each) for each in value] == [int] * 3
    else:
      fits = isinstance(value, (int, float)) and value > 0
    if not fits:
      raise UserError(f'--chip={name} has a wrong value for {field}: {value!r}')
  return Chip(**fields | {'shared_memory': tuple(fields['shared_memory'])})


def devices_of(chip: Chip, topology: str) -> list[Any]:
  """Returns descriptions of GPUs for the compiler.

  Args:
    chip: the kind of GPU.
    topology: `1x1x8` is one host with eight GPUs, `1x2x8` two such hosts.

  Raises:
    UserError: the topology is invalid, or the compiler is not installed.
  """
  sizes = _TOPOLOGY.fullmatch(topology)
  if not sizes or 0 in map(int, sizes.groups()):
    raise UserError(
      f'--topology must be 1xHOSTSxGPUS, such as 1x1x8 for the eight GPUs of a host or 1x2x8 '
      f'for two hosts; got {topology!r}'
    )
  if importlib.util.find_spec('jax_cuda12_plugin') is None:
    raise UserError(
      'the compiler for GPUs is not installed; with Python 3.12, install it with: pip install '
      '-r benchmarks/gpu_costs/requirements.txt'
    )
  # Allows the compiler to load on a machine without a driver.
  os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'
  configure_offline_compilation()
  from jax.experimental import topologies

  return list(
    topologies.get_topology_desc(
      platform='cuda',
      topology_name=topology,
      target_config=chip.target,
      topology=topology,
    ).devices
  )
