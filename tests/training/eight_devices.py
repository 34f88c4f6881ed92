"""Measures a model on every mesh of eight devices, and prints the results as JSON.

  python -m tests.training.eight_devices

It runs in a separate process, since the processes of the tests have fewer devices.
"""

import contextlib
import functools
import json
import tempfile
from pathlib import Path

import jax
import numpy as np

from tests.experiment.tiny_runs import rows_of, size_of
from tests.hlo_collectives import collectives_of
from tests.tiny_training import (
  VOCABULARY,
  NumberedBatches,
  Settings,
  make_batch,
  train_tiny,
)
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh
from transformer.training.training_setup import make_training_setup

DEVICES = 8
ROWS, LENGTHS = 8, (13, 11)
MESHES = [
  (data, fsdp, DEVICES // data // fsdp)
  for data in (1, 2, 4, 8)
  for fsdp in (1, 2, 4, 8)
  if data * fsdp <= DEVICES
]
EVALUATED = [(1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2)]
STEPS = 3
# Every width that the rules split is a multiple of eight.
MODEL = Transformer(
  ModelConfig(
    num_layers=1, model_dim=64, ff_dim=88, num_heads=8, dropout=0.2, norm_position='pre'
  ),
  VOCABULARY + 1,
)


def main():
  """Prints the results of each mesh, and of one device as `1,1,1`."""
  results = {
    ','.join(map(str, sizes)): on_mesh(sizes) for sizes in [(1, 1, 1), *MESHES]
  }
  with tempfile.TemporaryDirectory() as folder:
    results['elastic'] = elastic(Path(folder))
  print(json.dumps(results))


def on_mesh(sizes) -> dict:
  """Returns losses, bytes held and sent and, for some meshes, an evaluation."""
  mesh = make_mesh(MeshConfig(*sizes), ROWS, jax.devices()[: int(np.prod(sizes))])
  result, setup = {'losses': []}, make_training_setup(Settings(), MODEL, mesh)
  state = setup.first_state(initial())
  result['held'] = sum(
    leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state)
  )
  result['split'] = [
    leaf.nbytes
    for leaf in jax.tree.leaves(state.params)
    if 'fsdp' in leaf.sharding.spec
  ]
  if sizes in EVALUATED:
    _, step, evaluate = setup.compile((ROWS, *LENGTHS))
    sums = evaluate(state.params, make_batch(100, ROWS))
    result['valid'] = float(sums['nll'] / sums['weight'])
  else:
    step = setup.lower((ROWS, *LENGTHS)).compile()
  result['arguments'] = step.memory_analysis().argument_size_in_bytes
  result['sent'] = collectives_of(step)
  for number in range(STEPS):
    state, metrics = step(state, make_batch(number, ROWS))
    result['losses'].append(float(metrics['loss'] / metrics['weight']))
  return result


@functools.cache
def initial():
  """Returns the first parameters, as NumPy arrays."""
  return jax.device_get(jax.jit(lambda: init_params(MODEL, 3))())


def elastic(folder: Path) -> dict[str, list]:
  """Returns the metrics of a run on one device, and of a run that loses devices at each resume."""

  def run(name, sizes, fatal=None):
    workdir = folder / name
    mesh = make_mesh(MeshConfig(*sizes), ROWS, jax.devices()[: int(np.prod(sizes))])
    with contextlib.suppress(InterruptedError):
      train_tiny(
        Settings(),
        MODEL,
        workdir,
        NumberedBatches(fatal, ROWS),
        bleu=size_of,
        mesh=mesh,
      )
    return rows_of(workdir)

  whole = run('whole', (1, 1, 1))
  for sizes, fatal in (
    ((1, 8, 1), 6),
    ((2, 1, 2), 8),
    ((1, 1, 2), 11),
    ((1, 1, 1), None),
  ):
    parts = run('parts', sizes, fatal)
  return {'whole': whole, 'parts': parts}


if __name__ == '__main__':
  jax.config.update('jax_num_cpu_devices', DEVICES)
  jax.config.update('jax_disable_most_optimizations', True)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  main()
