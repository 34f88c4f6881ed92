"""The training step and the evaluation step, as pure functions; callers jit, shard and donate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import Batch
from transformer.model.building import Model
from transformer.ops.dropout import random_key
from transformer.training.config import TrainConfig
from transformer.training.mesh import gather_over_fsdp, num_row_shards
from transformer.training.objective import Objective, check_sums, cross_entropy


class Skips(NamedTuple):
  """Numbers of skipped steps: in total, and consecutive up to the latest step."""

  total: jax.Array
  in_a_row: jax.Array


class TrainState(NamedTuple):
  """The arrays that a training step updates.

  Attributes:
    step: int32 scalar, number of completed steps, skipped ones included.
    params: float32.
    average: exponential moving average of the parameters, or None.
    skips: None if steps are never skipped.
  """

  step: jax.Array
  params: Any
  optimizer: Any
  average: Any = None
  skips: Skips | None = None

  @property
  def eval_params(self):
    """The parameters for evaluation: the moving average if there is one."""
    return self.params if self.average is None else self.average


def init_state(
  params, optimizer: optax.GradientTransformation, config: TrainConfig
) -> TrainState:
  """Returns the initial state, with `average` and `skips` if `config` enables them."""
  # Copies, because a step donates every array of the state, and no buffer can be donated twice.
  average = jax.tree.map(jnp.copy, params) if config.ema_decay else None
  skips = (
    Skips(jnp.int32(0), jnp.int32(0)) if config.max_consecutive_nonfinite else None
  )
  return TrainState(jnp.int32(0), params, optimizer.init(params), average, skips)


def make_train_step(
  model: Model,
  optimizer: optax.GradientTransformation,
  config: TrainConfig,
  *,
  objective: Objective,
  seed: int,
  mesh: Mesh,
  num_microbatches: int = 1,
) -> Callable:
  """Returns a pure training step (state, batch, *`Objective.arguments`) -> (state, metrics).

  A skipped step changes only `step` and `skips` of the state. The metrics are

  - `loss`, `nll`: sums over target tokens in nats, float32 scalars,
  - `weight`, `source_tokens`: numbers of target and source tokens without padding,
  - `gradient_norm`: global norm before clipping,
  - `skips`: the new `Skips`, if the state has them.

  Args:
    config: only `ema_decay` is used. After n steps, the decay of the average is
      min(ema_decay, (1 + n) / (10 + n)), so that it soon forgets the initial parameters.
    seed: root of the dropout bits, which depend on the seed, the step and the microbatch.
    mesh: the devices that the step is compiled for.
    num_microbatches: microbatches per batch. Their sums are divided once, so the result equals
      the full-batch step up to rounding and dropout bits.
  """

  def sums(params, batch, key, frozen):
    row_shards = num_row_shards(mesh)
    totals = check_sums(
      objective.loss(
        model, params, batch, key, frozen=frozen, num_row_shards=row_shards
      )
    )
    return totals['loss'], totals

  def train_step(state: TrainState, batch: Batch, frozen=()):
    key = jax.random.fold_in(random_key(seed), state.step)
    gathered_params = gather_over_fsdp(mesh, state.params, model)
    gradient_of = jax.grad(sums, has_aux=True)
    if num_microbatches == 1:
      gradients, totals = gradient_of(gathered_params, batch, key, frozen)
    else:
      gradients, totals = _sum_microbatches(
        gradient_of,
        gathered_params,
        _split_microbatches(batch, num_microbatches),
        key,
        frozen,
      )
    # Otherwise, XLA would shard the backward pass like the state.
    gradients = gather_over_fsdp(mesh, gradients, model)
    gradients = jax.tree.map(
      lambda g: g / jnp.maximum(totals['weight'], 1.0), gradients
    )
    metrics = {
      **totals,
      'gradient_norm': optax.tree.norm(gradients),
      'source_tokens': jnp.sum(batch.source_segments > 0, dtype=jnp.float32),
    }
    updates, optimizer_state = optimizer.update(
      gradients, state.optimizer, state.params
    )
    params = optax.apply_updates(state.params, updates)
    average = _averaged(config.ema_decay, state, params)
    new = TrainState(state.step + 1, params, optimizer_state, average, state.skips)
    if state.skips is not None:
      new = _skip_nonfinite(state, new, metrics)
      metrics['skips'] = new.skips
    return new, metrics

  return train_step


def _sum_microbatches(gradient_of: Callable, params, parts: Batch, key, frozen):
  """Returns gradients and sums of the objective, both summed over microbatches."""

  def add_microbatch(carry, numbered):
    index, part = numbered
    gradients_and_sums = gradient_of(
      params, part, jax.random.fold_in(key, index), frozen
    )
    return jax.tree.map(jnp.add, carry, gradients_and_sums), None

  first = jax.tree.map(lambda x: x[0], parts)
  shapes = jax.eval_shape(gradient_of, params, first, key, frozen)
  zeros = jax.tree.map(jnp.zeros_like, shapes)
  indices = jnp.arange(len(parts.source_tokens))
  total, _ = jax.lax.scan(add_microbatch, zeros, (indices, parts))
  return total


def _averaged(ema_decay: float, state: TrainState, params):
  """Returns the moving average after a step to `params`; None if the state has no average."""
  if state.average is None:
    return None
  n = state.step.astype(jnp.float32)
  decay = jnp.minimum(ema_decay, (1.0 + n) / (10.0 + n))
  return jax.tree.map(
    lambda old, new: old + (1.0 - decay) * (new - old), state.average, params
  )


def _skip_nonfinite(old: TrainState, new: TrainState, metrics) -> TrainState:
  """Returns `new`; if loss or gradient is not finite, `old` with new `step` and `skips`."""
  finite = jnp.isfinite(metrics['loss']) & jnp.isfinite(metrics['gradient_norm'])
  in_a_row = jnp.where(finite, 0, old.skips.in_a_row + 1)
  skips = Skips(old.skips.total + ~finite, in_a_row)
  return optax.tree.where(finite, new, old)._replace(step=new.step, skips=skips)


def _split_microbatches(batch: Batch, count: int) -> Batch:
  """Splits a batch into microbatches along a new first axis; each has rows of all devices."""
  return jax.tree.map(
    lambda x: jnp.moveaxis(x.reshape(-1, count, *x.shape[1:]), 1, 0), batch
  )


def make_eval_step(model: Model, mesh: Mesh, num_microbatches: int) -> Callable:
  """Returns a pure evaluation step (params, batch) -> sums, in microbatches like training.

  The step returns the sums of the default objective, without label smoothing or dropout.
  """

  def eval_step(params, batch: Batch):
    gathered_params = gather_over_fsdp(mesh, params, model)

    def sums(rows: Batch):
      return cross_entropy(0.0).loss(
        model, gathered_params, rows, num_row_shards=num_row_shards(mesh)
      )

    if num_microbatches == 1:
      return sums(batch)
    totals = jax.lax.map(sums, _split_microbatches(batch, num_microbatches))
    return jax.tree.map(lambda parts: jnp.sum(parts, axis=0), totals)

  return eval_step
