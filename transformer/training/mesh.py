"""The mesh of devices, and the rules that split arrays over it."""

import math
from collections.abc import Sequence

import jax
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.errors import UserError
from transformer.training.config import MeshConfig


def make_mesh(config: MeshConfig, rows: int, devices: Sequence | None = None) -> Mesh:
  """Arranges devices, or all of JAX, in a mesh for so many rows at a time."""
  devices = jax.devices() if devices is None else devices
  # `jax.make_mesh` refuses a mesh whose sides differ from those of the TPU's network.
  arranged = create_device_mesh(
    _sizes(config, rows, len(devices)), devices, allow_split_physical_axes=True
  )
  return Mesh(arranged, ('data', 'fsdp', 'tensor'), axis_types=(AxisType.Auto,) * 3)


def _sizes(config: MeshConfig, rows: int, devices: int) -> tuple[int, int, int]:
  """Returns the sizes of the mesh axes for a number of devices; refuses what does not fit them."""
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
      f'mesh.data × mesh.fsdp = {data * fsdp} must divide the rows that go '
      f'through the model at a time, train.tokens_per_batch / data.max_length / '
      f'optimizer.accumulate = {rows}; set another train.tokens_per_batch'
    )
  return data, fsdp, tensor


def check_shares(
  config: MeshConfig, rows: int, sentences: int, devices: int, processes: int
):
  """Refuses batches, and sentences that several processes translate, which devices cannot share."""
  data, fsdp, _ = _sizes(config, rows, devices)
  if processes > 1 and sentences % (data * fsdp):
    raise UserError(
      f'mesh.data × mesh.fsdp = {data * fsdp} must divide decode.batch_size, since '
      f'several processes share the search; got {sentences}'
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that splits a leading axis, such as a batch's rows, over the mesh."""
  return NamedSharding(mesh, PartitionSpec(('data', 'fsdp')))


def sentence_sharding(mesh: Mesh, sentences: int) -> NamedSharding:
  """Returns the sharding that splits a batch of sentences; copies it if it cannot split evenly."""
  ways = row_devices(mesh)
  return replicated(mesh) if ways == 1 or sentences % ways else batch_sharding(mesh)


def sentence_mesh(sentences: int) -> Mesh:
  """Returns a mesh of the most devices of this process that can split the sentences evenly."""
  ways = math.gcd(sentences, jax.local_device_count())
  return make_mesh(MeshConfig(data=ways), sentences, jax.local_devices()[:ways])


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding that copies an array to all devices."""
  return NamedSharding(mesh, PartitionSpec())


def row_devices(mesh: Mesh) -> int:
  """Returns the number of parts that a batch's rows are split into."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def state_shardings(
  mesh: Mesh, state, model, axes: tuple[str, ...] = ('fsdp', 'tensor')
):
  """Returns the shardings of parameters, or of a whole training state, by `model.splits`.

  An array axis stays whole if its mesh axis does not divide it, or is not among `axes`. Without
  `splits`, each device has all of the parameters.
  """
  rules = getattr(model, 'splits', {})

  def sharding(path, leaf):
    names = tuple(jax.tree_util.keystr((key,), simple=True) for key in path[-2:])
    splits = rules.get(names) or rules.get(names[-1:], ())
    return NamedSharding(
      mesh,
      PartitionSpec(
        *(
          axis if axis in axes and size % mesh.shape[axis] == 0 else None
          for axis, size in zip(splits, leaf.shape, strict=False)
        )
      ),
    )

  return jax.tree_util.tree_map_with_path(sharding, state)


def gathering(mesh: Mesh, params, model):
  """Returns the shardings of a model's parameters that `fsdp` does not split."""
  return state_shardings(mesh, params, model, ('tensor',))


def gathered(mesh: Mesh, params, model):
  """Gathers parameters or gradients that `fsdp` splits.

  Else XLA would split the width of all activations too, and each device compute all rows.
  """
  if mesh.shape['fsdp'] == 1:
    return params
  return jax.lax.with_sharding_constraint(params, gathering(mesh, params, model))
