"""Builds the parts of an update, and compiles it before the first step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import Batch
from transformer.model.transformer import Transformer
from transformer.training.mesh import batch_sharding, replicated, state_shardings
from transformer.training.objective import Objective, cross_entropy
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import (
  TrainState,
  init_params,
  init_state,
  make_eval_step,
  make_train_step,
)


class Setup(NamedTuple):
  """The parts of an update, built once for a run.

  Attributes:
    mesh: the devices.
    schedule: the learning rate as a function of the number of updates already made.
    optimizer: the optimizer with this schedule.
    state: the training state, as shapes with shardings.
    objective: what the update minimises; its frozen arrays, or their shapes, have shardings.
  """

  mesh: Mesh
  schedule: optax.Schedule
  optimizer: optax.GradientTransformation
  state: TrainState
  objective: Objective


class Programs(NamedTuple):
  """A compiled update and a compiled evaluation for batches of one shape.

  Attributes:
    train_step: (state, batch, *`Objective.arguments`) -> (state, metrics); it donates the memory
      of the state.
    eval_step: (params, batch) -> sums.
  """

  train_step: Callable
  eval_step: Callable


def make_setup(settings, model: Transformer, mesh: Mesh,
               objective: Objective | None = None) -> Setup:
  """Builds the parts of an update, without computing or allocating arrays.

  Args:
    settings: the groups of the config that training reads.
    model: the model to train.
    mesh: the devices.
    objective: what the update minimises; None is the default.
  """
  schedule = make_schedule(settings.optimizer, model.config.model_dim, settings.train.steps)
  optimizer = make_optimizer(settings.optimizer, schedule, settings.train.freeze)
  state = jax.eval_shape(
      lambda: first_state(settings, optimizer, init_params(model, settings.seed)))
  return Setup(mesh, schedule, optimizer, jax.tree.map(
      lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
      state, state_shardings(mesh, state)), objective or cross_entropy(settings))


def first_state(settings, optimizer: optax.GradientTransformation, params: Any) -> TrainState:
  """Returns the state before the first update, with moving average and skips where configured."""
  return init_state(params, optimizer, averaged=settings.train.ema_decay > 0,
                    skipping=settings.train.skip_nonfinite > 0)


def compile_programs(settings, model: Transformer, setup: Setup,
                     shape: tuple[int, int, int]) -> Programs:
  """Compiles the update and the evaluation.

  Args:
    settings: the groups of the config that training reads.
    model: the model to train.
    setup: from `make_setup`.
    shape: rows, source positions and target positions of a batch.
  """
  mesh, params = setup.mesh, setup.state.best_params
  eval_step = jax.jit(make_eval_step(model, mesh, settings.optimizer.accumulate),
                      in_shardings=(_shardings(params), batch_sharding(mesh)),
                      out_shardings=replicated(mesh))
  return Programs(lower_train_step(settings, model, setup, shape).compile(),
                  eval_step.lower(params, _batch_like(mesh, shape)).compile())


def lower_train_step(settings, model: Transformer, setup: Setup,
                     shape: tuple[int, int, int]) -> jax.stages.Lowered:
  """Lowers the update, for devices that this machine need not have.

  `compile_programs` describes the arguments.
  """
  mesh, sharding, more = setup.mesh, _shardings(setup.state), setup.objective.arguments
  train_step = jax.jit(
      make_train_step(model, setup.optimizer, settings.train, objective=setup.objective,
                      seed=settings.seed, accumulate=settings.optimizer.accumulate, mesh=mesh),
      in_shardings=(sharding, batch_sharding(mesh), *[replicated(mesh)] * len(more)),
      out_shardings=(sharding, replicated(mesh)), donate_argnums=0)
  return train_step.lower(setup.state, _batch_like(mesh, shape), *more)


def _shardings(tree):
  return jax.tree.map(lambda leaf: leaf.sharding, tree)


def _batch_like(mesh: Mesh, shape: tuple[int, int, int]) -> Batch:
  """Returns the shapes of a batch."""
  rows, *lengths = shape
  source, target = (jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=batch_sharding(mesh))
                    for length in lengths)
  return Batch(*[source] * 3, *[target] * 3)
