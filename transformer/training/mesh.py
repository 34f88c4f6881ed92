"""The device mesh, and the shardings of arrays over it."""

import math
from collections.abc import Sequence

import jax
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.errors import UserError
from transformer.training.config import MeshConfig


def make_mesh(config: MeshConfig, rows: int, devices: Sequence | None = None) -> Mesh:
  """Returns a mesh of `devices` (None: all devices) for batches of `rows` rows."""
  devices = jax.devices() if devices is None else devices
  # `jax.make_mesh` rejects a mesh whose shape differs from the physical topology of a TPU.
  arranged = create_device_mesh(
    _sizes(config, rows, len(devices)), devices, allow_split_physical_axes=True
  )
  return Mesh(arranged, ('data', 'fsdp', 'tensor'), axis_types=(AxisType.Auto,) * 3)


def _sizes(config: MeshConfig, rows: int, devices: int) -> tuple[int, int, int]:
  """Returns the sizes of the mesh axes; raises `UserError` if they do not fit devices or rows."""
  sizes = [config.data, config.fsdp, config.tensor]
  if -1 in sizes:
    sizes[sizes.index(-1)] = devices // -math.prod(sizes)
  if math.prod(sizes) != devices:
    raise UserError(
      f'the mesh must use all {devices} devices; got data={config.data}, '
      f'fsdp={config.fsdp}, tensor={config.tensor}'
    )
  data, fsdp, tensor = sizes
  if rows % (data * fsdp):
    raise UserError(
      f'mesh.data × mesh.fsdp = {data * fsdp} must divide the rows of a microbatch, '
      f'train.tokens_per_batch / data.max_length / optimizer.num_microbatches = {rows}; set '
      'a different train.tokens_per_batch'
    )
  return data, fsdp, tensor


def check_even_sharding(
  config: MeshConfig, rows: int, sentences: int, devices: int, processes: int
):
  """Raises `UserError` if the mesh cannot split a batch, or the sentences of a search, evenly.

  The number of sentences matters only with several processes.
  """
  data, fsdp, _ = _sizes(config, rows, devices)
  if processes > 1 and sentences % (data * fsdp):
    raise UserError(
      f'mesh.data × mesh.fsdp = {data * fsdp} must divide decode.batch_size, since '
      f'several processes share the search; got {sentences}'
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that splits a leading axis, such as the rows of a batch, over the mesh."""
  return NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))


def sentence_sharding(mesh: Mesh, sentences: int) -> NamedSharding:
  """Returns the sharding of a batch of sentences: split, or replicated if not evenly divisible."""
  ways = num_row_shards(mesh)
  return replicated(mesh) if ways == 1 or sentences % ways else batch_sharding(mesh)


def sentence_mesh(sentences: int) -> Mesh:
  """Returns a mesh of local devices, as many as the gcd of their number and `sentences`."""
  ways = math.gcd(sentences, jax.local_device_count())
  return make_mesh(MeshConfig(data=ways), sentences, jax.local_devices()[:ways])


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that replicates an array on all devices."""
  return NamedSharding(mesh, PartitionSpec())


def num_row_shards(mesh: Mesh) -> int:
  """Returns the number of shards of the rows of a batch."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def state_shardings(
  mesh: Mesh, state, model, axes: tuple[str, ...] = ('fsdp', 'tensor')
):
  """Returns the shardings of parameters, or of a whole training state, by `model.sharding_rules`.

  An array axis is not split if its mesh axis does not divide its size, or is not in `axes`. Without
  `sharding_rules`, parameters are replicated.
  """
  rules = getattr(model, 'sharding_rules', {})

  def sharding(path, leaf):
    names = tuple(jax.tree_util.keystr((key,), simple=True) for key in path[-2:])
    axis_names = rules.get(names) or rules.get(names[-1:], ())
    return NamedSharding(
      mesh,
      PartitionSpec(
        *(
          axis if axis in axes and size % mesh.shape[axis] == 0 else None
          for axis, size in zip(axis_names, leaf.shape, strict=False)
        )
      ),
    )

  return jax.tree_util.tree_map_with_path(sharding, state)


def gathered_shardings(mesh: Mesh, params, model):
  """Returns the shardings of parameters gathered over `fsdp`: only `tensor` splits them."""
  return state_shardings(mesh, params, model, ('tensor',))


def gather_over_fsdp(mesh: Mesh, params, model):
  """Gathers parameters or gradients over the mesh axis `fsdp`.

  Otherwise, XLA would also split the width of all activations, and each device would compute all
  rows.
  """
  if mesh.shape['fsdp'] == 1:
    return params
  return jax.lax.with_sharding_constraint(
    params, gathered_shardings(mesh, params, model)
  )
