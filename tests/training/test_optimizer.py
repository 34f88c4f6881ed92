"""Learning rates by their formulas, Adam by optax's own."""

import chex
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.training.config import OptimizerConfig
from transformer.training.optimizer import make_optimizer, make_schedule, paper_schedule

STEPS = np.array([1, 2, 17, 3999, 4000, 4001, 100_000])


def rates(schedule):
  """The rate of the paper's step n, which is made after n − 1 updates."""
  return np.array([schedule(step - 1) for step in STEPS])


@pytest.mark.parametrize('scale', [1.0, 2.5])
def test_paper_schedule_is_equation_3(scale):
  wanted = scale * 512 ** -0.5 * np.minimum(STEPS ** -0.5, STEPS * 4000 ** -1.5)
  np.testing.assert_allclose(rates(paper_schedule(512, 4000, scale)), wanted, rtol=1e-5)
  config = OptimizerConfig(schedule='paper', scale=scale, warmup_steps=4000)
  np.testing.assert_allclose(rates(make_schedule(config, 512, 1)), wanted, rtol=1e-5)


def test_inverse_square_root_schedule_peaks_at_the_end_of_the_warm_up():
  config = OptimizerConfig(schedule='inverse_sqrt', peak_learning_rate=0.003, warmup_steps=4000)
  wanted = 0.003 * np.minimum(STEPS / 4000, (4000 / STEPS) ** 0.5)
  np.testing.assert_allclose(rates(make_schedule(config, 7, 1)), wanted, rtol=1e-5)


def test_cosine_schedule_rises_to_its_peak_and_falls_to_zero():
  config = OptimizerConfig(schedule='cosine', peak_learning_rate=0.01, warmup_steps=10)
  schedule = make_schedule(config, 7, 110)
  np.testing.assert_allclose([schedule(n) for n in (0, 5, 10, 60, 110)],
                             [0, 0.005, 0.01, 0.005, 0], atol=1e-8)


def test_constant_schedule_stays_at_its_peak():
  config = OptimizerConfig(schedule='constant', peak_learning_rate=0.01, warmup_steps=10)
  schedule = make_schedule(config, 7, 1)
  np.testing.assert_allclose([schedule(n) for n in (0, 5, 10, 99_999)], [0, 0.005, 0.01, 0.01],
                             atol=1e-8)


@pytest.mark.parametrize('clip_norm', [0.0, 0.5])
def test_optimizer_is_adam_after_clipping(clip_norm):
  config = OptimizerConfig(schedule='constant', peak_learning_rate=0.1, warmup_steps=1, b1=0.8,
                           b2=0.95, eps=1e-4, clip_norm=clip_norm)
  params = {'a': jnp.array([1.0, 2.0, 3.0]), 'b': jnp.ones((2, 5))}
  gradients = {'a': jnp.array([3.0, 0.0, -4.0]), 'b': jnp.full((2, 5), 0.01)}
  norm = float(optax.tree.norm(gradients))
  factor = min(1.0, clip_norm / norm) if clip_norm else 1.0
  clipped = {name: value * factor for name, value in gradients.items()}
  schedule = make_schedule(config, 7, 1)
  ours, reference = make_optimizer(config, schedule), optax.adam(schedule, 0.8, 0.95, 1e-4)
  state, reference_state = ours.init(params), reference.init(params)
  for _ in range(3):
    updates, state = ours.update(gradients, state, params)
    wanted, reference_state = reference.update(clipped, reference_state, params)
    chex.assert_trees_all_close(updates, wanted, rtol=1e-5)
