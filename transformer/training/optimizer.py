"""Learning-rate schedules and Adam (section 5.3)."""

import jax.numpy as jnp
import optax

from transformer.training.config import OptimizerConfig


def paper_schedule(model_dim: int, warmup_steps: int, scale: float = 1.0) -> optax.Schedule:
  """Equation 3: d^−½ · min(step^−½, step · warmup^−3⁄2), times `scale`.

  Args:
    model_dim: width of the model, d.
    warmup_steps: updates until the rate peaks, at scale · (d · warmup)^−½.
    scale: factor on the whole curve.

  Returns:
    A function of the number of updates already made, so that the first update
    is the paper's step 1.
  """
  return inverse_sqrt_schedule(scale * (model_dim * warmup_steps) ** -0.5, warmup_steps)


def inverse_sqrt_schedule(peak: float, warmup_steps: int) -> optax.Schedule:
  """Linear to `peak` over the warm-up, then falling with the root of the step."""
  def schedule(count):
    step = jnp.asarray(count, jnp.float32) + 1.0
    return peak * jnp.minimum(step / warmup_steps, jnp.sqrt(warmup_steps / step))
  return schedule


def make_schedule(config: OptimizerConfig, model_dim: int, steps: int) -> optax.Schedule:
  """The configured learning rate as a function of the number of updates already made.

  Args:
    config: the optimizer's settings.
    model_dim: width of the model; the paper's schedule depends on it.
    steps: updates in the run, more than the warm-up's; only `cosine` depends on it.

  Returns:
    An optax schedule.
  """
  peak, warmup = config.peak_learning_rate, config.warmup_steps
  schedules = {
      'paper': lambda: paper_schedule(model_dim, warmup, config.scale),
      'inverse_sqrt': lambda: inverse_sqrt_schedule(peak, warmup),
      'cosine': lambda: optax.warmup_cosine_decay_schedule(0.0, peak, warmup, steps),
      'constant': lambda: optax.join_schedules(
          [optax.linear_schedule(0.0, peak, warmup), optax.constant_schedule(peak)], [warmup]),
  }
  return schedules[config.schedule]()


def make_optimizer(config: OptimizerConfig, schedule: optax.Schedule
                   ) -> optax.GradientTransformation:
  """Adam with the given schedule, after clipping by global norm where configured."""
  clip = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
  return optax.chain(
      *clip,
      optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps),
      optax.scale_by_learning_rate(schedule))
