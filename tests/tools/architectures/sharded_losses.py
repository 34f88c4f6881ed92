"""Prints the losses of three training steps on one device, and on a mesh of eight."""

import jax
import numpy as np

from tests.tiny_training import VOCABULARY, Settings, make_batch
from transformer import plugins
from transformer.model.config import ModelConfig
from transformer.model.transformer import init_params
from transformer.training.config import MeshConfig
from transformer.training.mesh import make_mesh
from transformer.training.training_setup import make_training_setup

MESHES = [(1, 1, 1), (2, 2, 2)]
ROWS = 8


def main(module, settings):
  """Prints a line for each mesh."""
  jax.config.update('jax_num_cpu_devices', 8)
  jax.config.update('jax_disable_most_optimizations', True)
  config = ModelConfig(
    num_layers=1,
    model_dim=16,
    ff_dim=24,
    num_heads=4,
    norm_position='pre',
    positions='rotary',
    dropout=0.2,
  )
  model = plugins.load(module, 'model')(config, VOCABULARY + 1, **settings)
  params = jax.device_get(init_params(model, 3))
  for sizes in MESHES:
    mesh = make_mesh(MeshConfig(*sizes), ROWS, jax.devices()[: int(np.prod(sizes))])
    setup = make_training_setup(Settings(), model, mesh)
    state, losses = setup.first_state(params), []
    step = setup.lower((ROWS, 13, 11)).compile()
    for _ in range(3):
      state, metrics = step(state, make_batch(0, ROWS))
      losses.append(float(metrics['loss'] / metrics['weight']))
    print(*losses)
