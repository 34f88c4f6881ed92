"""A training step with its model, objective and optimizer, and its compiled programs."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.config import Config
from transformer.data.batch import Batch
from transformer.data.batches.training_batches import BatchShape
from transformer.model.building import Model
from transformer.model.transformer import init_params
from transformer.system import processes
from transformer.training.mesh import batch_sharding, replicated, state_shardings
from transformer.training.objective import Objective, cross_entropy
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import (
  TrainState,
  init_state,
  make_eval_step,
  make_train_step,
)


class TrainingSetup(NamedTuple):
  """Training and evaluation step of a model before compilation; `make_training_setup` builds it.

  Attributes:
    objective: the training objective; its frozen arrays are on all devices.
    schedule: the learning rate as a function of the number of updates.
    optimizer: the optimizer with this schedule.
    abstract_state: shapes and shardings of the training state.
  """

  config: Config
  model: Model
  mesh: Mesh
  objective: Objective
  schedule: optax.Schedule
  optimizer: optax.GradientTransformation
  abstract_state: TrainState

  @property
  def num_parameters(self) -> int:
    """The number of parameters of the model."""
    return sum(leaf.size for leaf in jax.tree.leaves(self.abstract_state.params))

  def shard_batch(self, batch: Batch) -> Batch:
    """Returns the batch as global arrays, sharded over all processes; unchanged with only one."""
    return processes.to_global(batch, batch_sharding(self.mesh))

  def first_state(self, params=None) -> TrainState:
    """Returns the initial state; if `params` is None, parameters are initialized from the seed."""

    def make(params):
      if params is None:
        params = init_params(self.model, self.config.seed)
      return init_state(params, self.optimizer, self.config.train)

    return jax.jit(make, out_shardings=_shardings(self.abstract_state))(params)

  def compile(self, shape: BatchShape) -> 'CompiledSteps':
    """Compiles the training and evaluation step for batches of `shape`."""
    eval_step = jax.jit(
      make_eval_step(self.model, self.mesh, self.config.optimizer.num_microbatches),
      out_shardings=replicated(self.mesh),
    )
    lowered = eval_step.lower(self.abstract_state.eval_params, self._batch(shape))
    return CompiledSteps(self, self.lower(shape).compile(), lowered.compile())

  def lower(self, shape: BatchShape) -> jax.stages.Lowered:
    """Lowers the training step; the devices of the mesh need not be on this machine."""
    train_step = jax.jit(
      make_train_step(
        self.model,
        self.optimizer,
        self.config.train,
        objective=self.objective,
        seed=self.config.seed,
        num_microbatches=self.config.optimizer.num_microbatches,
        mesh=self.mesh,
      ),
      out_shardings=(_shardings(self.abstract_state), replicated(self.mesh)),
      donate_argnums=0,
    )
    is_mixed = len(self.config.data.train) > 1
    return train_step.lower(
      self.abstract_state, self._batch(shape, is_mixed), *self.objective.arguments
    )

  def _batch(self, shape: BatchShape, is_mixed: bool = False) -> Batch:
    """Returns the shapes of a batch; with `is_mixed`, it has `corpus_ids`."""
    rows, source_length, target_length = shape
    sharding = batch_sharding(self.mesh)
    source = jax.ShapeDtypeStruct((rows, source_length), jnp.int32, sharding=sharding)
    target = jax.ShapeDtypeStruct((rows, target_length), jnp.int32, sharding=sharding)
    corpus_ids = target if is_mixed else None
    return Batch(source, source, source, target, target, target, corpus_ids)


class CompiledSteps(NamedTuple):
  """A compiled training and evaluation step.

  Attributes:
    train_step: (state, batch, *`Objective.arguments`) -> (state, metrics), from `make_train_step`;
      donates the state.
    eval_step: (params, batch) -> sums, from `make_eval_step`.
  """

  setup: TrainingSetup
  train_step: Callable
  eval_step: Callable


def make_training_setup(
  config: Config, model: Model, mesh: Mesh, objective: Objective | None = None
) -> TrainingSetup:
  """Returns a `TrainingSetup`; allocates only `objective.frozen`.

  `objective` is label-smoothed cross entropy by default.
  """
  schedule = make_schedule(config.optimizer, config.model.model_dim, config.train.steps)
  optimizer = make_optimizer(config.optimizer, schedule)
  state = jax.eval_shape(
    lambda: init_state(init_params(model, config.seed), optimizer, config.train)
  )
  shapes = jax.tree.map(
    lambda leaf, sharding: leaf.update(sharding=sharding),
    state,
    state_shardings(mesh, state, model),
  )
  objective = objective or cross_entropy(config.train.label_smoothing)
  if objective.arguments:
    frozen = processes.to_global(objective.frozen, replicated(mesh))
    objective = objective._replace(frozen=jax.device_put(frozen, replicated(mesh)))
  return TrainingSetup(config, model, mesh, objective, schedule, optimizer, shapes)


def _shardings(tree):
  return jax.tree.map(lambda leaf: leaf.sharding, tree)
