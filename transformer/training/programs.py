"""The programs that training runs on its devices, compiled before the first step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import Batch
from transformer.model.transformer import Transformer
from transformer.training.mesh import batch_sharding, replicated, state_shardings
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import (
  TrainState,
  init_params,
  init_state,
  make_eval_step,
  make_train_step,
)


class Programs(NamedTuple):
  """An update and an evaluation for one shape of batches.

  Attributes:
    state: the training state that they take, as shapes with shardings.
    train_step: (state, batch) -> (state, metrics), compiled; it takes the state's memory over.
    eval_step: (params, batch) -> sums, compiled.
  """

  state: TrainState
  train_step: Callable
  eval_step: Callable


def first_state(settings, optimizer: optax.GradientTransformation, params: Any) -> TrainState:
  """The state before the first update, with what the settings have it keep."""
  return init_state(params, optimizer, averaged=settings.train.ema_decay > 0,
                    skipping=settings.train.skip_nonfinite > 0)


def state_like(settings, model: Transformer, mesh: Mesh) -> TrainState:
  """The training state as shapes with their shardings; nothing is computed."""
  optimizer = _optimizer(settings, model)
  state = jax.eval_shape(
      lambda: first_state(settings, optimizer, init_params(model, settings.seed)))
  return jax.tree.map(lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype,
                                                               sharding=where),
                      state, state_shardings(mesh, state))


def compile_programs(settings, model: Transformer, state: TrainState, mesh: Mesh,
                     shape: tuple[int, int, int]) -> Programs:
  """Compiles what training runs over and over.

  Args:
    settings: the config's groups that training reads.
    model: what to train.
    state: from `state_like`.
    mesh: the devices.
    shape: of a batch: rows, source positions and target positions.

  Returns:
    The programs, each for these shapes and shardings alone.
  """
  by_rows = batch_sharding(mesh)
  eval_step = jax.jit(make_eval_step(model, mesh),
                      in_shardings=(_shardings(state.best_params), by_rows),
                      out_shardings=replicated(mesh))
  return Programs(state, lower_train_step(settings, model, state, mesh, shape).compile(),
                  eval_step.lower(state.best_params, _batch_like(mesh, shape)).compile())


def lower_train_step(settings, model: Transformer, state: TrainState, mesh: Mesh,
                     shape: tuple[int, int, int]) -> jax.stages.Lowered:
  """The update alone, for any devices, of which this machine need have none; `compile` is next.

  Takes what `compile_programs` takes.
  """
  config, by_rows, sharding = settings.train, batch_sharding(mesh), _shardings(state)
  train_step = jax.jit(
      make_train_step(model, _optimizer(settings, model), label_smoothing=config.label_smoothing,
                      seed=settings.seed, accumulate=settings.optimizer.accumulate,
                      r_drop=config.r_drop, ema_decay=config.ema_decay, mesh=mesh),
      in_shardings=(sharding, by_rows), out_shardings=(sharding, replicated(mesh)),
      donate_argnums=0)
  return train_step.lower(state, _batch_like(mesh, shape))


def _shardings(tree):
  return jax.tree.map(lambda leaf: leaf.sharding, tree)


def _batch_like(mesh: Mesh, shape: tuple[int, int, int]) -> Batch:
  rows, source_length, target_length = shape
  return Batch(*(jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=batch_sharding(mesh))
                 for length in (*[source_length] * 3, *[target_length] * 3)))


def _optimizer(settings, model: Transformer) -> optax.GradientTransformation:
  config = settings.optimizer
  return make_optimizer(config, make_schedule(config, model.config.model_dim,
                                              settings.train.steps))
