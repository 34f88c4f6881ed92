"""The state that training starts from."""

from collections.abc import Callable
from typing import Any

import jax

from transformer.model.transformer import Transformer
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.signal_checkpoint import SignalCheckpoint
from transformer.training.compilation import Setup, first_state
from transformer.training.step import TrainState, init_params


def starting_point(settings, model: Transformer, setup: Setup, checkpoints: Checkpoints,
                   interrupted: SignalCheckpoint, initial_params: Callable[[], Any] | None
                   ) -> tuple[TrainState, dict[str, Any], int | None]:
  """Restores the latest whole checkpoint of a run, or makes its first state.

  Args:
    settings: the groups of the config that training reads.
    model: the model to train.
    setup: from `make_setup`.
    checkpoints: the run's regular checkpoints.
    interrupted: the checkpoint that a signal made the run save.
    initial_params: () -> the first parameters; None draws them from the seed.

  Returns:
    The state, its history, and the step of the restored checkpoint or None.
  """
  like = setup.state
  stopped_at, whole = interrupted.step, interrupted.is_whole()
  # `fall_back` reads every byte of a checkpoint, so it is not called without need.
  is_latest = whole and stopped_at > max(checkpoints.steps(), default=-1)
  step = None if is_latest else checkpoints.fall_back()
  if stopped_at is not None and (step is None or stopped_at > step):
    if whole:
      return *interrupted.restore(like), stopped_at
    interrupted.set_aside(step)
  interrupted.remove()
  if step is not None:
    state, history = checkpoints.restore(step, like)
    checkpoints.prune(history)
    return state, history, step

  def make(params) -> TrainState:
    return first_state(settings, setup.optimizer, params)

  sharding = jax.tree.map(lambda leaf: leaf.sharding, like)
  if initial_params is None:
    state = jax.jit(lambda: make(init_params(model, settings.seed)), out_shardings=sharding)()
  else:
    state = jax.jit(make, out_shardings=sharding)(jax.device_get(initial_params()))
  return state, {'evaluations': [], 'meter': {}}, None
