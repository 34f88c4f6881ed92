"""An update with all that it is made of, compiled before the first step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import Batch
from transformer.model.building import Model
from transformer.model.transformer import init_params
from transformer.system import processes
from transformer.training.mesh import batch_sharding, replicated, state_shardings
from transformer.training.objective import Objective, smoothed
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import TrainState, init_state, make_eval_step, make_train_step


@dataclasses.dataclass(frozen=True)
class Update:
  """An update and an evaluation of a model, with their parts; `make_update` builds it.

  Attributes:
    objective: what the update minimises; its frozen arrays are on all devices.
    schedule: the learning rate as a function of the number of updates already made.
    optimizer: the optimizer with this schedule.
    state: the training state, as shapes with shardings.
    train_step: (state, batch, *`Objective.arguments`) -> (state, metrics), compiled; it donates the
      memory of the state. None before `compiled`, like `eval_step`.
    eval_step: (params, batch) -> sums, compiled.
  """

  config: Any
  model: Model
  mesh: Mesh
  objective: Objective
  schedule: optax.Schedule
  optimizer: optax.GradientTransformation
  state: TrainState
  train_step: Callable | None = None
  eval_step: Callable | None = None

  def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, Any]]:
    """Makes an update; returns the new state and the metrics of `make_train_step`."""
    return self.train_step(state, self.place(batch), *self.objective.arguments)

  def place(self, batch: Batch) -> Batch:
    """Puts this process's rows of a batch onto its devices."""
    return processes.place(batch, batch_sharding(self.mesh))

  def first_state(self, params: Any = None) -> TrainState:
    """Returns the state before the first update; without `params`, they come from the seed."""

    def make(params):
      return init_state(
        init_params(self.model, self.config.seed) if params is None else params,
        self.optimizer,
        self.config.train,
      )

    return jax.jit(make, out_shardings=_shardings(self.state))(params)

  def compiled(self, shape: tuple[int, int, int]) -> 'Update':
    """Returns this update, compiled for batches of `shape`: rows, source and target positions."""
    params, mesh = self.state.best_params, self.mesh
    eval_step = jax.jit(
      make_eval_step(self.model, mesh, self.config.optimizer.accumulate),
      in_shardings=(_shardings(params), batch_sharding(mesh)),
      out_shardings=replicated(mesh),
    )
    return dataclasses.replace(
      self,
      train_step=self.lower(shape).compile(),
      eval_step=eval_step.lower(params, self._batch(shape)).compile(),
    )

  def lower(self, shape: tuple[int, int, int]) -> jax.stages.Lowered:
    """Lowers `train_step`, for devices that this machine need not have."""
    sharding, more = _shardings(self.state), self.objective.arguments
    everywhere = replicated(self.mesh)
    train_step = jax.jit(
      make_train_step(
        self.model,
        self.optimizer,
        self.config.train,
        objective=self.objective,
        seed=self.config.seed,
        accumulate=self.config.optimizer.accumulate,
        mesh=self.mesh,
      ),
      in_shardings=(sharding, batch_sharding(self.mesh), *[everywhere] * len(more)),
      out_shardings=(sharding, everywhere),
      donate_argnums=0,
    )
    is_mixed = len(self.config.data.train) > 1
    return train_step.lower(self.state, self._batch(shape, is_mixed), *more)

  def _batch(self, shape: tuple[int, int, int], is_mixed: bool = False) -> Batch:
    """Returns the shapes of a batch; `is_mixed` says whether it has `corpora`."""
    rows, *lengths = shape
    source, target = (
      jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=batch_sharding(self.mesh))
      for length in lengths
    )
    return Batch(*[source] * 3, *[target] * (4 if is_mixed else 3))


def make_update(config, model: Model, mesh: Mesh, objective: Objective | None = None) -> Update:
  """Builds an update, of the default objective if None; allocates only its frozen arrays."""
  schedule = make_schedule(config.optimizer, config.model.model_dim, config.train.steps)
  optimizer = make_optimizer(config.optimizer, schedule, config.train.freeze)
  state = jax.eval_shape(
    lambda: init_state(init_params(model, config.seed), optimizer, config.train)
  )
  shapes = jax.tree.map(
    lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
    state,
    state_shardings(mesh, state, model),
  )
  objective = objective or smoothed(config.train.label_smoothing)
  if objective.arguments:
    frozen = processes.place(objective.frozen, replicated(mesh))
    objective = objective._replace(frozen=jax.device_put(frozen, replicated(mesh)))
  return Update(config, model, mesh, objective, schedule, optimizer, shapes)


def _shardings(tree):
  return jax.tree.map(lambda leaf: leaf.sharding, tree)
