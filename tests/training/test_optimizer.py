"""Learning rates follow their formulas, Adam equals optax's, and Muon has its properties."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import Config
from transformer.training.config import SCHEDULES, MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh, state_shardings
from transformer.training.optimizer import make_optimizer, make_schedule, paper_schedule
from transformer.training.step import init_params

STEPS = np.array([1, 2, 17, 3999, 4000, 4001, 100_000])


def rates(schedule):
  """Returns the learning rate of the paper's step n, after n − 1 updates."""
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


@pytest.mark.parametrize('schedule', SCHEDULES)
def test_a_schedule_says_whether_it_depends_on_the_length_of_the_run(monkeypatch, schedule):
  config = OptimizerConfig(schedule=schedule, warmup_steps=10)
  short, long = ([float(make_schedule(config, 7, steps)(n)) for n in range(20)]
                 for steps in (20, 30))
  assert (short != long) is SCHEDULES[schedule]
  if short != long:  # One that does not say so is not given the length.
    monkeypatch.setitem(SCHEDULES, schedule, False)
    with pytest.raises(TypeError):
      make_schedule(config, 7, 20)


@pytest.mark.parametrize('schedule', ['inverse_sqrt', 'cosine', 'constant'])
@pytest.mark.parametrize('steps', [3, 10])
def test_a_warm_up_that_is_longer_than_the_run_is_linear(schedule, steps):
  config = OptimizerConfig(schedule=schedule, peak_learning_rate=0.01, warmup_steps=10)
  run = Config(optimizer=config, train=TrainConfig(steps=steps, tokens_per_batch=256))
  found = make_schedule(run.optimizer, 7, run.train.steps)
  first = schedule == 'inverse_sqrt'  # Its first update is the paper's step 1.
  np.testing.assert_allclose([found(n) for n in range(steps)],
                             0.001 * (np.arange(steps) + first), atol=1e-8)


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


RATE = 0.01
MUON = OptimizerConfig(algorithm='muon', schedule='constant', peak_learning_rate=RATE,
                       warmup_steps=1, b1=0.8, b2=0.95, eps=1e-7)


@pytest.fixture(scope='module')
def params(model):
  return init_params(model, 3)


@pytest.fixture(scope='module')
def gradients(params):
  """Returns three random gradients."""
  rng = np.random.default_rng(0)
  return tuple(jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), params)
               for _ in range(3))


@functools.partial(jax.jit, static_argnums=0)
def three_updates(config, params, gradients):
  """Returns the third update of an optimizer, where the rate is at its peak."""
  optimizer = make_optimizer(config, make_schedule(config, 7, 1))
  state = optimizer.init(params)
  for each in gradients:
    updates, state = optimizer.update(each, state, params)
  return updates


def is_kernel(path):
  return path[-1].key == 'kernel'


@pytest.mark.long(but=('self_attention-4',))
@pytest.mark.parametrize(('part', 'count'), [('self_attention', 4), ('whole', 4 + 2 + 8 + 2)])
def test_muon_gives_all_directions_of_a_matrix_the_same_size(params, gradients, part, count):
  if part != 'whole':
    params, *gradients = (each['encoder_0'][part] for each in (params, *gradients))
  kernels, updates = 0, three_updates(MUON, params, tuple(gradients))
  for path, update in jax.tree_util.tree_leaves_with_path(updates):
    if not is_kernel(path):
      continue
    kernels += 1
    dim = 10  # The model's width: the last axis of these two kernels, the first of all others.
    ends = path[-2].key in ('output', 'outer')
    matrix = np.reshape(update, (-1, dim) if ends else (dim, -1))
    # Five Newton–Schulz iterations bring the singular values only near to 1.
    sizes = np.linalg.svd(matrix, compute_uv=False) / (RATE * 0.2 * max(matrix.shape) ** 0.5)
    assert sizes.min() > 0.5 and sizes.max() < 1.3, (path, sizes)
  assert kernels == count


def test_muon_leaves_all_but_matrices_to_adam(params, gradients):
  schedule = make_schedule(MUON, 7, 1)
  reference = optax.nadam(schedule, MUON.b1, MUON.b2, MUON.eps)
  state = reference.init(params)
  for each in gradients:
    wanted, state = reference.update(each, state, params)
  compared = 0
  for (path, update), adams in zip(
      jax.tree_util.tree_leaves_with_path(three_updates(MUON, params, gradients)),
      jax.tree.leaves(wanted), strict=True):
    if not is_kernel(path):
      compared += 1
      np.testing.assert_allclose(update, adams, rtol=1e-4, atol=1e-8)
  assert compared


@pytest.mark.parametrize('algorithm', ['adam', 'muon'])
def test_weight_decay_is_of_matrices_alone(algorithm, params, gradients):
  params, *gradients = ({'table': each['target_embedding'], **each['encoder_0']['feed_forward']}
                        for each in (params, *gradients))
  plain = dataclasses.replace(MUON, algorithm=algorithm)
  decaying = dataclasses.replace(plain, weight_decay=0.3)
  without, with_decay = (three_updates(each, params, gradients) for each in (plain, decaying))
  jax.tree_util.tree_map_with_path(
      lambda path, param, before, after: np.testing.assert_allclose(
          after - before, -RATE * 0.3 * param * is_kernel(path), atol=1e-6),
      params, without, with_decay)


@pytest.mark.long
@pytest.mark.parametrize('sizes', [(1, 2, 2), (2, 1, 2)])
def test_muon_is_the_same_on_any_mesh(sizes, params, gradients):
  mesh = make_mesh(MeshConfig(*sizes), 4, jax.devices()[:4])
  shardings = state_shardings(mesh, params)
  assert any(not each.is_fully_replicated for each in jax.tree.leaves(shardings))
  split = jax.device_put((params, gradients), (shardings, (shardings,) * 3))
  chex.assert_trees_all_close(three_updates(MUON, *split), three_updates(MUON, params, gradients),
                              atol=1e-6)
