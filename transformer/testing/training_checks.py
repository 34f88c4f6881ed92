"""Checks of training: sharded equals single-device, and resumed equals uninterrupted."""

import functools
import math
import tempfile
from pathlib import Path

import jax
import numpy as np

from transformer.config import Config
from transformer.data.batch import Batch
from transformer.data.batches.training_batches import BatchShape
from transformer.data.config import DataConfig
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError, type_and_message
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.testing.model_under_test import CheckFailed, ModelUnderTest, require
from transformer.testing.random_batches import pack, random_pair
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh
from transformer.training.training_setup import TrainingSetup, make_training_setup

_ROWS = 8
_SOURCE_LENGTH = 13
_TARGET_LENGTH = 11
_STEPS = 3
# Mesh sizes (data, fsdp, tensor) by number of devices.
_MESHES = {8: ((8, 1, 1), (2, 2, 2)), 4: ((4, 1, 1), (1, 2, 2))}


_DATA = DataConfig(max_length=_TARGET_LENGTH)
_DECODE = DecodeConfig(max_extra_length=1)
_TRAIN = TrainConfig(tokens_per_batch=_ROWS * _TARGET_LENGTH)
_OPTIMIZER = OptimizerConfig(
  schedule='constant', peak_learning_rate=0.01, warmup_steps=1
)


def sharded_training_equals_one_device(subject: ModelUnderTest):
  """Checks that training steps on eight or four devices equal steps on one, even with dropout."""
  devices = jax.local_devices(backend='cpu')
  num_devices = 8 if len(devices) >= 8 else 4
  if len(devices) < num_devices:
    raise UserError(
      f'this check needs 4 or 8 devices; there are {len(devices)}; start Python with '
      f'XLA_FLAGS=--xla_force_host_platform_device_count=8'
    )
  expected = _metrics(*_setup(subject, (1, 1, 1)))
  for sizes in _MESHES[num_devices]:
    actual = _metrics(*_setup(subject, sizes))
    # Losses and gradients are means of some hundred terms.
    require(
      np.allclose(actual, expected, rtol=1e-4),
      f'with {_axes(sizes)}, losses and norms of gradients are {actual.tolist()}, on one '
      f'device {expected.tolist()}: results would depend on the number of devices; a row must not '
      f'depend on other rows or on its index, and random numbers must not depend on the device',
    )


def resumed_training_equals_uninterrupted(subject: ModelUnderTest):
  """Checks that a resumed run is bit-identical to an uninterrupted run."""
  setup, step = _setup(subject, (1, 1, 1))
  final, losses = _trained(step, setup.first_state(), 0, _STEPS)
  repeated, _ = _trained(step, setup.first_state(), 0, _STEPS)
  require(
    _equal(final, repeated),
    'two runs with the same seed differ: a training step must depend only on its state, its '
    'batch and its dropout key',
  )
  require(
    np.all(np.isfinite(losses)), f'the losses of a run are {losses}: it would not train'
  )
  half, _ = _trained(step, setup.first_state(), 0, 1)
  restored = _restored(half, setup.abstract_state)
  require(
    _equal(half, restored),
    'the parameters of a restored checkpoint differ from the saved ones: a trained run could not '
    'be loaded',
  )
  resumed, _ = _trained(step, restored, 1, _STEPS)
  require(
    _equal(final, resumed),
    'the final parameters of a resumed run differ from an uninterrupted run; everything that a '
    'training step keeps must be in its state',
  )


def _restored(state, abstract_state):
  """Saves a state after one step, and returns the restored checkpoint."""
  with tempfile.TemporaryDirectory() as folder:
    writer = CheckpointWriter(Path(folder))
    writer.save(state, {'evaluations': []})
    writer.wait()
    restored = writer.restore(1, abstract_state)
    writer.close()
  return restored


@functools.lru_cache(maxsize=1)  # Two checks start with the same arguments.
def _setup(subject, sizes) -> tuple[TrainingSetup, jax.stages.Compiled]:
  """Returns a `TrainingSetup` on a mesh, and its compiled training step.

  Sizes are even, so that the fsdp and tensor axes can split the parameters of `sharding_rules`.
  """
  config = subject.config
  subject = subject.shallow.with_config(
    model_dim=2 * config.model_dim,
    ff_dim=2 * config.ff_dim,
    num_heads=2 * config.num_heads,
  )
  devices = jax.local_devices(backend='cpu')[: math.prod(sizes)]
  mesh = make_mesh(MeshConfig(*sizes), _ROWS, devices)
  try:
    config = Config(_DATA, subject.config, _OPTIMIZER, _TRAIN, _DECODE, seed=7)
    setup = make_training_setup(config, subject.model, mesh)
    step = setup.lower(BatchShape(_ROWS, _SOURCE_LENGTH, _TARGET_LENGTH)).compile()
  except Exception as error:  # JAX and XLA raise several types.
    raise CheckFailed(
      f'with {_axes(sizes)}, a training step cannot be compiled, so no run would begin; '
      f'look at the model and its `sharding_rules`: {type_and_message(error)}'
    ) from error
  return setup, step


def _axes(sizes) -> str:
  """Returns the mesh sizes as settings."""
  return 'mesh.data={}, mesh.fsdp={}, mesh.tensor={}'.format(*sizes)


def _metrics(setup: TrainingSetup, step: jax.stages.Compiled) -> np.ndarray:
  """Returns the loss and the gradient norm of each step."""
  state = setup.first_state()
  rows = []
  for index in range(_STEPS):
    state, metrics = step(state, _batch(index))
    loss = metrics['loss'] / metrics['weight']
    rows.append((loss, metrics['gradient_norm']))
  return np.asarray(rows)


def _trained(step, state, start, stop):
  """Returns the state and the losses after the steps; the given state is not donated."""
  state = jax.tree.map(lambda leaf: leaf.copy(), state)
  losses = []
  for index in range(start, stop):
    state, metrics = step(state, _batch(index))
    losses.append(float(metrics['loss'] / metrics['weight']))
  return state, losses


def _batch(index: int) -> Batch:
  """Returns batch `index`, with two pairs in every row."""
  rows = []
  for row in range(_ROWS):
    seed = 2 * (_ROWS * index + row)
    first = random_pair(5, 3, seed)
    second = random_pair(7, 5, seed + 1)
    rows.append([first, second])
  return pack(rows, _SOURCE_LENGTH, _TARGET_LENGTH)


def _equal(first, second) -> bool:
  """Returns whether all arrays of two pytrees are equal."""
  equal = jax.tree.map(np.array_equal, first, second)
  return all(jax.tree.leaves(equal))
