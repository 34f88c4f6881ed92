"""The state that training starts from."""

from collections.abc import Callable
from typing import Any

import jax

from transformer.model.transformer import Transformer
from transformer.runs.checkpoints import Checkpoints
from transformer.training.compilation import Setup, first_state
from transformer.training.step import TrainState, init_params


def starting_point(settings, model: Transformer, setup: Setup, checkpoints: Checkpoints,
                   initial_params: Callable[[], Any] | None
                   ) -> tuple[TrainState, dict[str, Any], int | None]:
  """Restores the latest whole checkpoint of a run, or makes its first state.

  Args:
    settings: the groups of the config that training reads.
    model: the model to train.
    setup: from `make_setup`.
    checkpoints: the run's checkpoints.
    initial_params: () -> the first parameters; None draws them from the seed.

  Returns:
    The state, its history, and the step of the restored checkpoint or None.
  """
  like = setup.state
  step = checkpoints.fall_back()
  if step is not None:
    return *checkpoints.restore(step, like), step

  def make(params) -> TrainState:
    return first_state(settings, setup.optimizer, params)

  sharding = jax.tree.map(lambda leaf: leaf.sharding, like)
  if initial_params is None:
    state = jax.jit(lambda: make(init_params(model, settings.seed)), out_shardings=sharding)()
  else:
    state = jax.jit(make, out_shardings=sharding)(jax.device_get(initial_params()))
  return state, {'evaluations': [], 'meter': {}}, None
