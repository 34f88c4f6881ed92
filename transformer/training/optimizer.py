"""Learning-rate schedules, Adam (section 5.3) and Muon."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from transformer.training.config import SCHEDULES, OptimizerConfig
from transformer.training.freezing import frozen_mask

# Momentum of Jordan et al., 2024. Root mean square of an update, as large as Adam's, of Liu et al.,
# 2025.
_MUON_MOMENTUM = 0.95
_MUON_RMS = 0.2


def paper_schedule(model_dim: int, warmup_steps: int, scale: float = 1.0) -> optax.Schedule:
  """Equation 3: d^−½ · min(step^−½, step · warmup^−3⁄2), times `scale`.

  It is a function of the number of updates already made: the paper's step 1 is number 0.
  """
  return inverse_sqrt_schedule(scale * (model_dim * warmup_steps) ** -0.5, warmup_steps)


def inverse_sqrt_schedule(peak: float, warmup_steps: int) -> optax.Schedule:
  """Returns a schedule that rises linearly to `peak` in the warm-up and then falls with step^−½."""
  def schedule(count):
    step = jnp.asarray(count, jnp.float32) + 1.0
    return peak * jnp.minimum(step / warmup_steps, jnp.sqrt(warmup_steps / step))
  return schedule


def make_schedule(config: OptimizerConfig, model_dim: int, steps: int) -> optax.Schedule:
  """Returns the configured learning rate as a function of the number of updates already made.

  `cosine` and `constant` with a warm-up begin at 0, so their first update changes no parameter.

  Args:
    model_dim: width of the model; the paper's schedule depends on it.
    steps: number of updates in the run, for a schedule of which `SCHEDULES` says that it depends
      on it. With a longer warm-up, the rate rises until the end of the run.
  """
  make = _schedules(config, model_dim)[config.schedule]
  return make(steps) if SCHEDULES[config.schedule] else make()


def _schedules(config: OptimizerConfig, model_dim: int) -> dict[str, Callable]:
  peak, warmup = config.peak_learning_rate, config.warmup_steps
  return {
      'paper': lambda: paper_schedule(model_dim, warmup, config.scale),
      'inverse_sqrt': lambda: inverse_sqrt_schedule(peak, warmup),
      'cosine': lambda steps: optax.warmup_cosine_decay_schedule(
          0.0, peak, warmup, max(steps, warmup + 1)),
      'constant': lambda: optax.join_schedules(
          [optax.linear_schedule(0.0, peak, warmup), optax.constant_schedule(peak)], [warmup]),
  }


def make_optimizer(config: OptimizerConfig, schedule: optax.Schedule, freeze: str = ''
                   ) -> optax.GradientTransformation:
  """Returns Adam or Muon with the given schedule, after clipping by global norm if configured.

  The transformation's `update` takes the parameters too.

  Args:
    freeze: as `TrainConfig.freeze`; frozen parameters have no state, and the norm for clipping
      is that of the others.
  """
  clip = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
  algorithm = {'adam': _adam, 'muon': _muon}[config.algorithm]
  optimizer = optax.chain(*clip, *algorithm(config, schedule))
  if not freeze:
    return optimizer
  return optax.partition(
      {'trained': optimizer, 'frozen': optax.set_to_zero()},
      lambda params: jax.tree.map(lambda frozen: 'frozen' if frozen else 'trained',
                                  frozen_mask(freeze, params)))


def _adam(config, schedule):
  decay = [optax.add_decayed_weights(config.weight_decay, _are_matrices)
           ] if config.weight_decay else []
  return (optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps), *decay,
          optax.scale_by_learning_rate(schedule))


def _muon(config, schedule):
  return (optax.contrib.muon(
      schedule, beta=_MUON_MOMENTUM, eps=config.eps, weight_decay=config.weight_decay,
      adam_b1=config.b1, adam_b2=config.b2, consistent_rms=_MUON_RMS,
      muon_weight_dimension_numbers=_matrix_axes),)


def _matrix_axes(params):
  """Returns the input and output axes of each kernel; None for all other parameters."""
  def matrix(path, leaf):
    if not _is_matrix(path):
      return None
    # The output projection has two axes of inputs; other kernels have one.
    inputs = leaf.ndim - 1 if path[-2].key == 'output' else 1
    return optax.contrib.MuonDimensionNumbers(tuple(range(inputs)), tuple(range(inputs, leaf.ndim)))
  return jax.tree_util.tree_map_with_path(matrix, params)


def _are_matrices(params):
  """Returns, for each parameter, whether it is a kernel."""
  return jax.tree_util.tree_map_with_path(lambda path, _: _is_matrix(path), params)


def _is_matrix(path) -> bool:
  return path[-1].key == 'kernel'
