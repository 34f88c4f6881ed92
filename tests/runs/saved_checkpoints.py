"""Small checkpoints for the tests of this package."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np

from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints
from transformer.training.step import TrainState


def state_of(step: int) -> TrainState:
  """Returns a state of incompressible numbers, different for each step."""
  rng = np.random.default_rng(step)
  params = {
    'a': jnp.asarray(rng.normal(size=(7, 5)), jnp.float32),
    'b': {'c': jnp.asarray(rng.normal(size=11), jnp.float32)},
  }
  optimizer = (jax.tree.map(jnp.square, params), jnp.int32(step))
  return TrainState(jnp.int32(step), params, optimizer)


LIKE = jax.tree.map(
  lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state_of(0)
)


def history_of(bleu) -> dict:
  return {
    'evaluations': [
      {'step': step, 'valid/bleu': float(score), 'valid/loss': 3.0}
      for step, score in enumerate(bleu, 1)
    ],
    'meter': {},
  }


def save(directory, steps, bleu=(), keep=9):
  with contextlib.closing(CheckpointWriter(directory, keep=keep)) as checkpoints:
    for step in steps:
      checkpoints.save(state_of(step), history_of(bleu[:step]))


def looked_at(directory, action):
  """Returns the result of `action` for the checkpoints in a directory, opened to be read."""
  return action(Checkpoints(directory))


def resumed(directory):
  """Returns the state that training would resume from, and its history."""
  with contextlib.closing(CheckpointWriter(directory, keep=9)) as checkpoints:
    step = checkpoints.latest_intact()
    return checkpoints.restore(step, LIKE), checkpoints.history(step)
