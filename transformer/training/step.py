"""One update and one evaluation, as pure functions; callers jit, shard and donate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import Batch
from transformer.model.building import Model
from transformer.ops.dropout import random_key
from transformer.ops.losses import smoothed_cross_entropy
from transformer.training.config import TrainConfig
from transformer.training.freezing import hold_frozen
from transformer.training.mesh import gathered, row_devices
from transformer.training.objective import Objective, forward, token_weights


class Skips(NamedTuple):
  """Numbers of updates whose loss or gradient was not finite: all, and the latest ones in a row."""

  total: jax.Array
  in_a_row: jax.Array


class TrainState(NamedTuple):
  """The arrays that an update changes.

  Attributes:
    step: int32 scalar, number of updates, skipped ones included.
    params: float32.
    average: exponential moving average of the parameters, or None.
    skips: None if updates are never skipped.
  """

  step: jax.Array
  params: Any
  optimizer: Any
  average: Any = None
  skips: Skips | None = None

  @property
  def best_params(self):
    """The parameters for evaluation: the average if there is one."""
    return self.params if self.average is None else self.average


def init_state(
  params, optimizer: optax.GradientTransformation, config: TrainConfig | None = None
) -> TrainState:
  """Returns the state before the first update; `config` may ask for an average and for skips."""
  config = config or TrainConfig()
  # Copies, because an update donates every array of the state, and none can be donated twice.
  average = jax.tree.map(jnp.copy, params) if config.ema_decay > 0 else None
  skips = Skips(jnp.int32(0), jnp.int32(0)) if config.skip_nonfinite > 0 else None
  return TrainState(jnp.int32(0), params, optimizer.init(params), average, skips)


def make_train_step(
  model: Model,
  optimizer: optax.GradientTransformation,
  config: TrainConfig,
  *,
  objective: Objective,
  seed: int,
  accumulate: int = 1,
  mesh: Mesh | None = None,
) -> Callable:
  """Builds one update: a pure function (state, batch, *`Objective.arguments`) -> (state, metrics).

  A skipped update changes only `step` and `skips` of the state. The metrics are

  - `loss`, `nll`: sums over target tokens in nats, float32 scalars,
  - `weight`, `source_tokens`: numbers of target and source tokens without padding,
  - `gradient_norm`: global norm before clipping,
  - `finite`: for each array of the parameters, whether the norm of its gradient is finite,
  - `skips`: the new `Skips`, if the state has them.

  Args:
    config: only `freeze` and `ema_decay` are used. After n updates, the decay of the average is
      min(ema_decay, (1 + n) / (10 + n)), so that it soon forgets the initial parameters.
    seed: root of the dropout bits, which depend on the seed, the step and the part of the batch.
    accumulate: number of parts that a batch is cut into. Their sums are divided once, so the update
      is that of the whole batch, except for dropout bits.
    mesh: the devices that the step is compiled for; None is one device.
  """

  def train_step(state: TrainState, batch: Batch, frozen: Any = ()):
    def sums(params, batch, key):
      totals = objective.loss(
        model,
        hold_frozen(config.freeze, params),
        batch,
        key,
        frozen=frozen,
        devices=row_devices(mesh),
      )
      return totals['loss'], totals

    gradient_of = jax.grad(sums, has_aux=True)
    key = jax.random.fold_in(random_key(seed), state.step)
    whole = gathered(mesh, state.params, model)
    if accumulate == 1:
      gradients, totals = gradient_of(whole, batch, key)
    else:
      parts = _parts(batch, accumulate)

      def add_part(carry, part):
        number, rows = part
        return jax.tree.map(
          jnp.add, carry, gradient_of(whole, rows, jax.random.fold_in(key, number))
        ), None

      shapes = jax.eval_shape(gradient_of, whole, jax.tree.map(lambda x: x[0], parts), key)
      (gradients, totals), _ = jax.lax.scan(
        add_part, jax.tree.map(jnp.zeros_like, shapes), (jnp.arange(accumulate), parts)
      )
    # Without this, XLA would shard the backward pass as the state is sharded.
    gradients = gathered(mesh, gradients, model)
    gradients = jax.tree.map(lambda g: g / jnp.maximum(totals['weight'], 1.0), gradients)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    norms = [optax.tree.norm(gradient) for gradient in jax.tree.leaves(gradients)]
    metrics = {
      **totals,
      'gradient_norm': optax.tree.norm(gradients),
      'finite': jnp.isfinite(jnp.stack(norms)),
      'source_tokens': jnp.sum(batch.source_segments > 0, dtype=jnp.float32),
    }
    average = state.average
    if average is not None:
      n = state.step.astype(jnp.float32)
      decay = jnp.minimum(config.ema_decay, (1.0 + n) / (10.0 + n))
      average = jax.tree.map(lambda old, new: old + (1.0 - decay) * (new - old), average, params)
    skips = state.skips
    if skips is not None:
      finite = jnp.isfinite(metrics['loss']) & jnp.isfinite(metrics['gradient_norm'])
      params, optimizer_state, average = optax.tree.where(
        finite, (params, optimizer_state, average), (state.params, state.optimizer, state.average)
      )
      skips = Skips(skips.total + ~finite, jnp.where(finite, 0, skips.in_a_row + 1))
      metrics['skips'] = skips
    return TrainState(state.step + 1, params, optimizer_state, average, skips), metrics

  return train_step


def _parts(batch: Batch, number: int) -> Batch:
  """Cuts a batch into parts along a new first axis; all devices have rows of each part."""
  return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, number, *x.shape[1:]), 1, 0), batch)


def make_eval_step(model: Model, mesh: Mesh | None = None, accumulate: int = 1) -> Callable:
  """Builds an evaluation, a pure function (params, batch) -> sums, in parts as an update.

  The sums are `loss`, `nll` and `weight`, without smoothing or dropout, so `loss` equals `nll`.
  """

  def plain(params, batch: Batch):
    x_BTD, output_ND, _ = forward(model, params, batch)
    return smoothed_cross_entropy(
      x_BTD, output_ND, batch.target_tokens, token_weights(batch), devices=row_devices(mesh)
    )

  def eval_step(params, batch: Batch):
    whole = gathered(mesh, params, model)
    if accumulate == 1:
      return plain(whole, batch)
    totals = jax.lax.map(lambda rows: plain(whole, rows), _parts(batch, accumulate))
    return jax.tree.map(lambda sums: jnp.sum(sums, axis=0), totals)

  return eval_step
