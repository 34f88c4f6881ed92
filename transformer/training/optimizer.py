"""The extension points `optimizer.schedule` and `.algorithm`; Adam (section 5.3) and Muon."""

import functools

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from transformer import plugins
from transformer.errors import UserError, short_repr
from transformer.training.config import OptimizerConfig

_B1 = 0.9  # Section 5.3.
_EPS = 1e-9
_MUON_MOMENTUM = 0.95  # Jordan et al., 2024.
_MUON_RMS = 0.2  # Root mean square of an update, similar to Adam's (Liu et al., 2025).


def noam(config: OptimizerConfig, steps: int, model_dim: int) -> optax.Schedule:
  """Equation 3 times `noam_scale`: d^−½ · min(step^−½, step · warmup^−3⁄2).

  Count 0 is the paper's step 1.
  """
  return _inverse_sqrt(
    config.noam_scale * (model_dim * config.warmup_steps) ** -0.5, config.warmup_steps
  )


def inverse_sqrt(config: OptimizerConfig, steps: int, model_dim: int) -> optax.Schedule:
  """Equation 3 with a given peak."""
  return _inverse_sqrt(config.peak_learning_rate, config.warmup_steps)


def _inverse_sqrt(peak: float, warmup: int) -> optax.Schedule:
  def schedule(count):
    step = jnp.asarray(count, jnp.float32) + 1.0
    return peak * jnp.minimum(step / warmup, jnp.sqrt(warmup / step))

  return schedule


def cosine(config: OptimizerConfig, steps: int, model_dim: int) -> optax.Schedule:
  """Linear warmup from 0 to the peak, then cosine decay to 0; only warmup if it is longer."""
  warmup = config.warmup_steps
  return optax.warmup_cosine_decay_schedule(
    0.0, config.peak_learning_rate, warmup, max(steps, warmup + 1)
  )


def constant(config: OptimizerConfig, steps: int, model_dim: int) -> optax.Schedule:
  """Linear warmup from 0 to the peak, then constant."""
  return optax.warmup_constant_schedule(
    0.0, config.peak_learning_rate, config.warmup_steps
  )


def adam(
  config: OptimizerConfig, schedule: optax.Schedule
) -> list[optax.GradientTransformation]:
  """Adam, with decoupled weight decay of matrices; a list, to which clipping can be added."""
  parts = [optax.scale_by_adam(b1=_B1, b2=config.b2, eps=_EPS)]
  if config.weight_decay:
    parts.append(
      optax.add_decayed_weights(
        config.weight_decay,
        functools.partial(jax.tree_util.tree_map_with_path, _is_matrix),
      )
    )
  return [*parts, optax.scale_by_learning_rate(schedule)]


def muon(
  config: OptimizerConfig, schedule: optax.Schedule
) -> list[optax.GradientTransformation]:
  """Muon for matrices; Adam with Nesterov momentum for all other parameters."""
  algorithm = optax.contrib.muon(
    schedule,
    beta=_MUON_MOMENTUM,
    eps=_EPS,
    weight_decay=config.weight_decay,
    adam_b1=_B1,
    adam_b2=config.b2,
    consistent_rms=_MUON_RMS,
    muon_weight_dimension_numbers=_matrix_axes,
  )
  return [algorithm]


_SCHEDULES = {
  'noam': noam,
  'inverse_sqrt': inverse_sqrt,
  'cosine': cosine,
  'constant': constant,
}
_ALGORITHMS = {'adam': adam, 'muon': muon}


def make_schedule(
  config: OptimizerConfig, model_dim: int, steps: int
) -> optax.Schedule:
  """Returns the learning rate as a function of the number of updates, skipped steps excluded."""
  name = plugins.name_of(config.schedule)
  if name in _SCHEDULES:
    return _SCHEDULES[name](config, steps, model_dim)
  guarded = plugins.as_user_error(f'the schedule {name} failed')
  schedule = guarded(
    plugins.build(config.schedule, 'schedule', config, steps, model_dim)
  )
  rate = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32))
  if getattr(rate, 'shape', None) != ():
    raise UserError(
      f'the schedule {name} must return a function from the training step to the learning rate; '
      f'it returns {rate}'
    )
  return schedule


def make_optimizer(
  config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
  """Returns the optimizer with this schedule, after clipping by global norm if configured."""
  name = plugins.name_of(config.algorithm)
  parts = _ALGORITHMS.get(name, _custom)(config, schedule)
  if config.clip_norm:
    parts = [optax.clip_by_global_norm(config.clip_norm), *parts]
  return optax.chain(*parts)


def _custom(
  config: OptimizerConfig, schedule: optax.Schedule
) -> list[optax.GradientTransformation]:
  name = plugins.name_of(config.algorithm)
  algorithm = plugins.build(config.algorithm, 'algorithm', config, schedule)
  if not isinstance(algorithm, optax.GradientTransformation):
    raise UserError(
      f'the algorithm {name} must return an optax.GradientTransformation; got '
      f'{short_repr(algorithm)}'
    )
  guarded = plugins.as_user_error(f'the algorithm {name} failed')
  return [optax.GradientTransformation(*map(guarded, algorithm))]


def _matrix_axes(params):
  """Returns the input and output axes of each kernel; None for all other parameters."""

  def matrix(path, leaf):
    if not _is_matrix(path, leaf):
      return None
    # The output projection of attention has two input axes; other kernels have one.
    inputs = leaf.ndim - 1 if path[-2].key == 'output' else 1
    return optax.contrib.MuonDimensionNumbers(
      tuple(range(inputs)), tuple(range(inputs, leaf.ndim))
    )

  return jax.tree_util.tree_map_with_path(matrix, params)


def _is_matrix(path, _) -> bool:
  return path[-1].key == 'kernel'
