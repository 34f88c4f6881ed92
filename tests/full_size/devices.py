"""A few training steps of the Tiny model on one device and on eight."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from tests.full_size import tiny
from transformer.model.transformer import Transformer
from transformer.ops.dropout import random_bits, random_key
from transformer.system.processes import to_global
from transformer.training.mesh import batch_sharding, make_mesh
from transformer.training.training_setup import make_training_setup

MESHES = [(1, 1, 1), (8, 1, 1), (2, 2, 2)]
STEPS = 3


def measure(folder):
  """Returns the results of `on_mesh` for each mesh, with states compared to one device."""
  del folder
  found = {','.join(map(str, sizes)): on_mesh(sizes) for sizes in MESHES}
  states = {name: result.pop('state') for name, result in found.items()}
  one = states['1,1,1']
  for name, state in states.items():
    found[name]['moments'] = {
      array: float(np.linalg.norm(leaf - other) / np.linalg.norm(other))
      for array, leaf, other in side_by_side(state.optimizer[0].mu, one.optimizer[0].mu)
    }
    found[name]['params'] = differences(state.params, one.params)
  return found


def on_mesh(sizes) -> dict:
  """Returns losses and learning rates of some training steps, the state, and dropout bits."""
  config = tiny.make_config(
    optimizer__warmup_steps=STEPS,
    mesh__data=sizes[0],
    mesh__fsdp=sizes[1],
    mesh__tensor=sizes[2],
  )
  model = Transformer(config.model, tiny.VOCABULARY + 1)  # A size that eight divides.
  batches = tiny.training_batches(config, tiny.random_pairs(tiny.FULL, 64))
  mesh = make_mesh(
    config.mesh, batches.shape.rows, jax.devices()[: int(np.prod(sizes))]
  )
  setup = make_training_setup(config, model, mesh)
  step = setup.lower(batches.shape).compile()
  state = setup.first_state(tiny.random_params(model))
  by_rows, losses = batch_sharding(mesh), []
  for number in range(STEPS):
    state, metrics = step(state, to_global(batches[number], by_rows))
    losses.append(float(metrics['loss'] / metrics['weight']))
  bits = jax.jit(
    lambda key: random_bits(key, (*batches.shape[:2], config.model.model_dim)),
    out_shardings=by_rows,
  )(random_key(config.seed))
  return {
    'losses': losses,
    'devices': len(bits.sharding.device_set),
    'bits': hashlib.sha256(np.asarray(bits).tobytes()).hexdigest(),
    'rate': sum(float(setup.schedule(jnp.int32(step))) for step in range(STEPS)),
    'state': jax.device_get(state),
  }


def differences(tree, wanted) -> dict[str, tuple[float, float]]:
  """Returns, for each array, the mean and the largest difference."""
  return {
    name: (float(np.abs(leaf - other).mean()), float(np.abs(leaf - other).max()))
    for name, leaf, other in side_by_side(tree, wanted)
  }


def side_by_side(tree, wanted):
  """Yields the name of each array, and both."""
  for (path, leaf), other in zip(
    jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(wanted), strict=True
  ):
    yield jax.tree_util.keystr(path, simple=True, separator='.'), leaf, other
