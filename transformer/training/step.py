"""One update, and one evaluation, as pure functions; callers jit, shard and donate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import BOS_ID, Batch
from transformer.model.transformer import Transformer
from transformer.ops.losses import smoothed_cross_entropy
from transformer.training.mesh import gathered, row_devices


class Skips(NamedTuple):
  """Updates that were skipped because their loss or gradient was no finite number.

  Attributes:
    total: int32 scalar, since the run began.
    in_a_row: int32 scalar, up to the latest step.
  """

  total: jax.Array
  in_a_row: jax.Array


class TrainState(NamedTuple):
  """All that an update changes; arrays only.

  Attributes:
    step: int32 scalar, updates made, and skipped.
    params: the model's parameters, float32.
    optimizer: optax's state.
    average: an exponential moving average of the parameters; None is none.
    skips: what was skipped; None skips nothing.
  """

  step: jax.Array
  params: Any
  optimizer: Any
  average: Any = None
  skips: Skips | None = None

  @property
  def best_params(self):
    """What is evaluated: the average, if there is one."""
    return self.params if self.average is None else self.average


def random_key(seed: int):
  """The root of a run's randomness; `ops.dropout` counts on this generator."""
  return jax.random.key(seed, impl='threefry2x32')


def init_params(model: Transformer, seed: int):
  """Random parameters, a function of the model and the seed alone."""
  side = jnp.zeros((1, 2), jnp.int32)
  return model.init(random_key(seed), side, side, side, side, side, side)['params']


def init_state(params, optimizer: optax.GradientTransformation, averaged: bool = False,
               skipping: bool = False) -> TrainState:
  """The state before the first update.

  Args:
    params: where training starts.
    optimizer: from `make_optimizer`.
    averaged: keep a moving average of the parameters.
    skipping: skip updates whose loss or gradient is no finite number.
  """
  # A copy, because the state's arrays are given away one by one.
  average = jax.tree.map(jnp.copy, params) if averaged else None
  skips = Skips(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)) if skipping else None
  return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), average, skips)


def shift_right(tokens_BT, positions_BT):
  """The decoder's inputs: every target one place later, a begin token before each.

  Args:
    tokens_BT: int32 packed targets.
    positions_BT: int32, a token's place in its own target.

  Returns:
    [B, T] int32: `BOS_ID` at position 0 of every target, elsewhere the token before.
  """
  before_BT = jnp.pad(tokens_BT, ((0, 0), (1, 0)))[:, :-1]
  return jnp.where(positions_BT == 0, BOS_ID, before_BT)


def batch_loss(model: Transformer, params, batch: Batch, label_smoothing: float, dropout_key=None,
               r_drop: float = 0.0, devices: int = 1):
  """Sums of the loss over a batch's real target tokens.

  Args:
    model: the Transformer.
    params: its parameters.
    batch: packed rows.
    label_smoothing: ε.
    dropout_key: turns dropout on.
    r_drop: α; above 0, each row goes through the model twice, and each pass counts
      half.
    devices: that the rows are split over.

  Returns:
    The dict of `ops.losses.smoothed_cross_entropy`.
  """
  weights_BT = (batch.target_segments > 0).astype(jnp.float32)
  if r_drop:
    # Twins are neighbours, so that a device that holds one holds the other.
    batch, weights_BT = jax.tree.map(lambda x: jnp.repeat(x, 2, axis=0), (batch, weights_BT / 2))
  x_BTD, output_ND = model.apply(
      {'params': params},
      batch.source_tokens, batch.source_segments, batch.source_positions,
      shift_right(batch.target_tokens, batch.target_positions),
      batch.target_segments, batch.target_positions,
      deterministic=dropout_key is None,
      rngs=None if dropout_key is None else {'dropout': dropout_key})
  return smoothed_cross_entropy(x_BTD, output_ND, batch.target_tokens, weights_BT,
                                label_smoothing, r_drop, devices)


def make_train_step(model: Transformer, optimizer: optax.GradientTransformation, *,
                    label_smoothing: float, seed: int, accumulate: int = 1, r_drop: float = 0.0,
                    ema_decay: float = 0.0, mesh: Mesh | None = None) -> Callable:
  """Builds the update.

  Args:
    model: the Transformer.
    optimizer: from `make_optimizer`.
    label_smoothing: ε.
    seed: root of all dropout; the bits of a step are a function of (seed, step), and
      of the part where a batch is cut into several.
    accumulate: number of parts that a batch's rows are cut into, one forward and
      backward pass each. Sums are divided once, so the update is that of the
      whole batch, with other dropout bits.
    r_drop: α of R-Drop (Liang et al., 2021); 0 is without.
    ema_decay: decay of the moving average of the parameters, for a state that has
      one; min(decay, (1 + n) / (10 + n)) after n updates, so that it soon forgets
      where it began.
    mesh: the devices that the step is compiled for, where they are several.

  Returns:
    A pure function (state, batch) -> (state, metrics). The metrics are float32
    scalars: sums `loss`, `nll`, `weight` (real target tokens) and
    `source_tokens`, and `gradient_norm`, before clipping; beside them an array
    `layer_gradient_norms`, the same of each layer, in the order of `layers_of`; and `skips`,
    where the state counts them. A step that is skipped changes that count and its own
    number.
  """

  def sums(params, batch, key):
    totals = batch_loss(model, params, batch, label_smoothing, key, r_drop, row_devices(mesh))
    return totals['loss'], totals

  gradient_of = jax.grad(sums, has_aux=True)

  def train_step(state: TrainState, batch: Batch):
    key = jax.random.fold_in(random_key(seed), state.step)
    whole = gathered(mesh, state.params)
    if accumulate == 1:
      gradients, totals = gradient_of(whole, batch, key)
    else:
      # Part k has every row whose number is k modulo the parts, so that the devices
      # that hold the rows share the work of each part.
      parts = jax.tree.map(
          lambda x: jnp.moveaxis(x.reshape(-1, accumulate, *x.shape[1:]), 1, 0), batch)

      def add_part(carry, part):
        number, rows = part
        return jax.tree.map(
            jnp.add, carry, gradient_of(whole, rows, jax.random.fold_in(key, number))), None

      shapes = jax.eval_shape(gradient_of, whole, jax.tree.map(lambda x: x[0], parts), key)
      zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
      (gradients, totals), _ = jax.lax.scan(add_part, zeros, (jnp.arange(accumulate), parts))
    # Without this, how the state lies would reach back into the backward pass.
    gradients = gathered(mesh, gradients)
    gradients = jax.tree.map(lambda g: g / jnp.maximum(totals['weight'], 1.0), gradients)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {**totals, 'gradient_norm': optax.tree.norm(gradients),
               'layer_gradient_norms': jnp.stack([optax.tree.norm(gradients[layer])
                                                  for layer in layers_of(gradients)]),
               'source_tokens': jnp.sum(batch.source_segments > 0, dtype=jnp.float32)}
    average = state.average
    if average is not None:
      n = state.step.astype(jnp.float32)
      decay = jnp.minimum(ema_decay, (1.0 + n) / (10.0 + n))
      average = jax.tree.map(lambda old, new: old + (1.0 - decay) * (new - old), average, params)
    skips = state.skips
    if skips is not None:
      finite = jnp.isfinite(metrics['loss']) & jnp.isfinite(metrics['gradient_norm'])
      params, optimizer_state, average = jax.tree.map(
          lambda new, old: jnp.where(finite, new, old), (params, optimizer_state, average),
          (state.params, state.optimizer, state.average))
      skips = Skips(skips.total + ~finite, jnp.where(finite, 0, skips.in_a_row + 1))
      metrics['skips'] = skips
    return TrainState(state.step + 1, params, optimizer_state, average, skips), metrics

  return train_step


def layers_of(params) -> list[str]:
  """The names of a model's layers, and of what else has parameters, in a fixed order."""
  return sorted(params)


def make_eval_step(model: Transformer, mesh: Mesh | None = None) -> Callable:
  """Builds the evaluation of a batch.

  Args:
    model: the Transformer.
    mesh: the devices that it is compiled for, where they are several.

  Returns:
    A pure function (params, batch) -> sums `loss` (which is `nll`), `nll` and
    `weight`, without smoothing or dropout.
  """
  def eval_step(params, batch: Batch):
    return batch_loss(model, gathered(mesh, params), batch, 0.0, devices=row_devices(mesh))
  return eval_step
