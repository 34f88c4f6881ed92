"""Which device holds which part of an array: the mesh, and the rules, in one place."""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.errors import UserError
from transformer.training.config import MeshConfig

# By the last names on a parameter's path: what splits each of its axes. An
# optimizer's moments end on the names of their parameters, and follow them.
_SPLITS = {
    ('query', 'kernel'): ('fsdp', 'tensor', None),
    ('key', 'kernel'): ('fsdp', 'tensor', None),
    ('value', 'kernel'): ('fsdp', 'tensor', None),
    ('query', 'bias'): ('tensor', None),
    ('key', 'bias'): ('tensor', None),
    ('value', 'bias'): ('tensor', None),
    ('inner', 'kernel'): ('fsdp', 'tensor'),
    ('inner', 'bias'): ('tensor',),
    ('gate', 'kernel'): ('fsdp', 'tensor'),
    ('outer', 'kernel'): ('tensor', 'fsdp'),
    ('source_embedding', 'table'): ('tensor', 'fsdp'),
    ('target_embedding', 'table'): ('tensor', 'fsdp'),
    ('output', 'kernel'): ('tensor', None, 'fsdp'),
    ('output',): ('tensor', 'fsdp'),
}


def make_mesh(config: MeshConfig, rows: int, devices: Sequence | None = None) -> Mesh:
  """Arranges devices as configured.

  Args:
    config: how many ways to split; −1 takes what is left.
    rows: rows that go through the model at a time, which `data` and `fsdp` split.
    devices: what to arrange; None is all that JAX has.

  Returns:
    A mesh with axes `data`, `fsdp` and `tensor`.

  Raises:
    UserError: the sizes do not multiply to the number of devices, or do not
      divide the rows.
  """
  sizes = [config.data, config.fsdp, config.tensor]
  devices = jax.devices() if devices is None else devices
  named = f'data={config.data}, fsdp={config.fsdp}, tensor={config.tensor}'
  if -1 in sizes:
    given = -int(np.prod(sizes))
    if len(devices) % given:
      raise UserError(f'the mesh must divide the {len(devices)} devices; got {named}')
    sizes[sizes.index(-1)] = len(devices) // given
  if np.prod(sizes) != len(devices):
    raise UserError(f'the mesh must use all {len(devices)} devices; got {named}')
  if rows % (sizes[0] * sizes[1]):
    raise UserError(f'mesh.data × mesh.fsdp = {sizes[0] * sizes[1]} must divide the rows that go '
                    f'through the model at a time, train.tokens_per_batch / data.max_length / '
                    f'optimizer.accumulate = {rows}')
  # A TPU's links form a block, whose sides need not be the mesh's; `jax.make_mesh` would refuse.
  arranged = create_device_mesh(tuple(sizes), devices, allow_split_physical_axes=True)
  return Mesh(arranged, ('data', 'fsdp', 'tensor'), axis_types=(AxisType.Auto,) * 3)


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Splits the rows of a batch, or anything else with one leading axis, over the mesh."""
  return NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))


def sentence_sharding(mesh: Mesh, sentences: int) -> NamedSharding | None:
  """Splits the sentences that are translated together; None where a mesh cannot, evenly."""
  ways = row_devices(mesh)
  return batch_sharding(mesh) if mesh.size > 1 and sentences % ways == 0 else None


def sentence_mesh(sentences: int) -> Mesh:
  """As many of this process's devices as can share sentences evenly; each has all parameters."""
  ways = math.gcd(sentences, jax.local_device_count())
  return make_mesh(MeshConfig(data=ways), sentences, jax.local_devices()[:ways])


def replicated(mesh: Mesh) -> NamedSharding:
  """The same on every device."""
  return NamedSharding(mesh, PartitionSpec())


def row_devices(mesh: Mesh | None) -> int:
  """How many devices the rows of a batch are split over; without a mesh, one."""
  return 1 if mesh is None else mesh.shape['data'] * mesh.shape['fsdp']


def state_shardings(mesh: Mesh, state, axes: tuple[str, ...] = ('fsdp', 'tensor')):
  """Applies the rules of this file to parameters, or to a whole training state.

  Args:
    mesh: from `make_mesh`.
    state: a pytree of arrays or of their shapes.
    axes: of the mesh, those that split anything.

  Returns:
    The same pytree of shardings. An axis that its mesh axis does not divide is
    not split.
  """
  def sharding(path, leaf):
    names = tuple(str(getattr(key, 'key', getattr(key, 'name', key))) for key in path[-2:])
    splits = _SPLITS.get(names) or _SPLITS.get(names[-1:], ())
    return NamedSharding(mesh, PartitionSpec(*(
        axis if axis in axes and size % mesh.shape[axis] == 0 else None
        for axis, size in zip(splits, leaf.shape, strict=False))))

  return jax.tree_util.tree_map_with_path(sharding, state)


def gathered(mesh: Mesh | None, params):
  """Brings together what `fsdp` splits: parameters, or gradients, as the model works with them.

  Left to itself, XLA follows the parameters instead of the rows, and splits the width of
  every activation, of which each device then has all rows.

  Args:
    mesh: from `make_mesh`; None is a single device.
    params: parameters or their gradients, in a function that is being compiled.
  """
  if mesh is None or mesh.shape['fsdp'] == 1:
    return params
  return jax.lax.with_sharding_constraint(params, state_shardings(mesh, params, ('tensor',)))
