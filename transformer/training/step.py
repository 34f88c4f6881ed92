"""One update and one evaluation, as pure functions; callers jit, shard and donate."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer.data.batch import BOS_ID, Batch
from transformer.model.transformer import Transformer
from transformer.ops.losses import PLAIN, LossOptions, smoothed_cross_entropy
from transformer.training.config import TrainConfig
from transformer.training.freezing import hold_frozen
from transformer.training.mesh import gathered, row_devices


class Skips(NamedTuple):
  """Numbers of updates that were skipped because their loss or gradient was not finite.

  Attributes:
    total: int32 scalar, skipped updates since the start of the run.
    in_a_row: int32 scalar, skipped updates since the latest update that was not skipped.
  """

  total: jax.Array
  in_a_row: jax.Array


class TrainState(NamedTuple):
  """The arrays that an update changes.

  Attributes:
    step: int32 scalar, number of updates, skipped ones included.
    params: the model's parameters, float32.
    optimizer: optax's state.
    average: exponential moving average of the parameters, or None.
    skips: numbers of skipped updates; None if updates are never skipped.
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


def random_key(seed: int):
  """Returns the root key of a run, with the generator that `ops.dropout` needs."""
  return jax.random.key(seed, impl='threefry2x32')


def init_params(model: Transformer, seed: int):
  """Returns random parameters, a function of the model and the seed alone."""
  side = jnp.zeros((1, 2), jnp.int32)
  return model.init(random_key(seed), side, side, side, side, side, side)['params']


def init_state(params, optimizer: optax.GradientTransformation, averaged: bool = False,
               skipping: bool = False) -> TrainState:
  """Returns the state before the first update.

  Args:
    params: the initial parameters.
    optimizer: from `make_optimizer`.
    averaged: whether to keep a moving average of the parameters.
    skipping: whether to skip updates whose loss or gradient is not finite.
  """
  # A copy, because an update donates every array of the state, and none can be donated twice.
  average = jax.tree.map(jnp.copy, params) if averaged else None
  skips = Skips(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)) if skipping else None
  return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), average, skips)


def shift_right(tokens_BT, positions_BT):
  """Returns the decoder's inputs: each target shifted right by one, after a begin token.

  Args:
    tokens_BT: int32 packed targets.
    positions_BT: int32, the token's position in its own target.

  Returns:
    int32 [B, T]: `BOS_ID` at position 0 of every target, elsewhere the token before.
  """
  before_BT = jnp.pad(tokens_BT, ((0, 0), (1, 0)))[:, :-1]
  return jnp.where(positions_BT == 0, BOS_ID, before_BT)


def batch_loss(model: Transformer, params, batch: Batch, options: LossOptions = PLAIN,
               dropout_key=None, teachers: Sequence[tuple[Transformer, Any]] = ()):
  """Returns the sums of the loss over the target tokens of a batch, without padding.

  Args:
    model: the Transformer.
    params: its parameters.
    batch: packed rows.
    options: the terms of the loss. With R-Drop, each row takes two passes, each with half the
      weight.
    dropout_key: the random key of dropout; None turns dropout off.
    teachers: the models that `options.teacher_share` is for, with their parameters. They see the
      batch without dropout.

  Returns:
    The dict of `ops.losses.smoothed_cross_entropy`.
  """
  weights_BT = (batch.target_segments > 0).astype(jnp.float32)
  lessons = [_decode(teacher, own, batch) for teacher, own in teachers]
  if options.consistency:
    # Twins are neighbours, so that both are on the same device.
    def twice(array):
      return jnp.repeat(array, 2, axis=0)

    batch, weights_BT = jax.tree.map(twice, (batch, weights_BT / 2))
    lessons = [(twice(x_BTD), output_ND) for x_BTD, output_ND in lessons]
  x_BTD, output_ND = _decode(model, params, batch, dropout_key)
  return smoothed_cross_entropy(x_BTD, output_ND, batch.target_tokens, weights_BT, options, lessons)


def _decode(model: Transformer, params, batch: Batch, dropout_key=None):
  """Decodes by teacher forcing: returns the output [B, T, D] and the output projection."""
  return model.apply(
      {'params': params}, batch.source_tokens, batch.source_segments, batch.source_positions,
      shift_right(batch.target_tokens, batch.target_positions), batch.target_segments,
      batch.target_positions, deterministic=dropout_key is None,
      rngs=None if dropout_key is None else {'dropout': dropout_key})


def loss_options(config: TrainConfig, mesh: Mesh | None = None) -> LossOptions:
  """Returns the terms of the training loss.

  Args:
    config: the settings of training.
    mesh: the devices; None is one device.
  """
  share = config.teacher_share if config.teachers else 0.0
  return LossOptions(config.label_smoothing, config.r_drop, share, config.teacher_temperature,
                     row_devices(mesh))


def make_train_step(model: Transformer, optimizer: optax.GradientTransformation,
                    config: TrainConfig, *, seed: int, accumulate: int = 1,
                    mesh: Mesh | None = None, teachers: Sequence[Transformer] = ()) -> Callable:
  """Builds the function that makes one update.

  Args:
    model: the Transformer.
    optimizer: from `make_optimizer`.
    config: only `freeze`, `ema_decay` and what `loss_options` takes are used. After n updates,
      the decay of the moving average is min(ema_decay, (1 + n) / (10 + n)), so that the average
      soon forgets the initial parameters.
    seed: root of the dropout bits, which depend on the seed, the step and the part of the
      batch.
    accumulate: number of parts that a batch's rows are cut into. Each part takes a forward
      and a backward pass. Sums over all parts are divided once, so the update equals that
      of the whole batch, except for dropout bits.
    mesh: the devices that the step is compiled for; None is one device.
    teachers: the models of `config.teachers`.

  Returns:
    A pure function (state, batch) -> (state, metrics); with teachers, (state, batch, the
    parameters of each teacher) -> (state, metrics). A skipped update changes only `step` and
    `skips` of the state. The metrics are

    - `loss`, `nll`: sums over target tokens in nats, float32 scalars,
    - `weight`, `source_tokens`: numbers of target and source tokens without padding,
    - `gradient_norm`: global norm before clipping,
    - `layer_gradient_norms`: the norm for each layer, in the order of `layers_of`,
    - `skips`: the new `Skips`, if the state has them.
  """

  options = loss_options(config, mesh)

  def train_step(state: TrainState, batch: Batch, teacher_params: Sequence[Any] = ()):
    def sums(params, batch, key):
      totals = batch_loss(model, hold_frozen(config.freeze, params), batch, options, key,
                          list(zip(teachers, teacher_params, strict=True)))
      return totals['loss'], totals

    gradient_of = jax.grad(sums, has_aux=True)
    key = jax.random.fold_in(random_key(seed), state.step)
    whole = gathered(mesh, state.params)
    if accumulate == 1:
      gradients, totals = gradient_of(whole, batch, key)
    else:
      parts = _parts(batch, accumulate)

      def add_part(carry, part):
        number, rows = part
        return jax.tree.map(
            jnp.add, carry, gradient_of(whole, rows, jax.random.fold_in(key, number))), None

      shapes = jax.eval_shape(gradient_of, whole, jax.tree.map(lambda x: x[0], parts), key)
      zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
      (gradients, totals), _ = jax.lax.scan(add_part, zeros, (jnp.arange(accumulate), parts))
    # Without this, XLA would shard the backward pass as the state is sharded.
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
      decay = jnp.minimum(config.ema_decay, (1.0 + n) / (10.0 + n))
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
  """Returns the sorted names of the model's layers and of its other modules with parameters."""
  return sorted(params)


def _parts(batch: Batch, number: int) -> Batch:
  """Cuts the rows of a batch into parts, which a new first axis numbers.

  Part k has rows k, k + number, …, so that all devices share the work of each part.
  """
  return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, number, *x.shape[1:]), 1, 0), batch)


def make_eval_step(model: Transformer, mesh: Mesh | None = None, accumulate: int = 1) -> Callable:
  """Builds the function that evaluates a batch.

  Args:
    model: the Transformer.
    mesh: the devices that the evaluation is compiled for; None is one device.
    accumulate: number of parts that a batch's rows are cut into, as in an update.

  Returns:
    A pure function (params, batch) -> dict of sums `loss`, `nll` and `weight`, without
    smoothing or dropout, so that `loss` equals `nll`.
  """
  options = LossOptions(devices=row_devices(mesh))

  def eval_step(params, batch: Batch):
    whole = gathered(mesh, params)
    if accumulate == 1:
      return batch_loss(model, whole, batch, options)
    totals = jax.lax.map(lambda rows: batch_loss(model, whole, rows, options),
                         _parts(batch, accumulate))
    return jax.tree.map(lambda each: jnp.sum(each, axis=0), totals)

  return eval_step
