"""Learning rates follow their formulas, Adam equals optax's, and Muon has its properties."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.experiment.tiny_runs import final_state, run
from tests.training.bigram_model import Bigrams
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.transformer import Transformer, init_params
from transformer.training.config import SCHEDULES, MeshConfig, OptimizerConfig
from transformer.training.mesh import make_mesh, state_shardings
from transformer.training.optimizer import make_optimizer, make_schedule

STEPS = np.array([1, 2, 17, 3999, 4000, 4001, 100_000])


def curve(schedule, counts, steps=110, **settings):
  """Returns the learning rates after numbers of training steps, in a model of width 512."""
  config = OptimizerConfig(schedule=schedule, **settings)
  return jax.jit(jax.vmap(make_schedule(config, 512, steps)))(np.asarray(counts))


@pytest.mark.parametrize(
  ('schedule', 'peak'),
  [('noam', {'noam_scale': 2.5}), ('inverse_sqrt', {'peak_learning_rate': 0.003})],
)
def test_the_paper_s_schedule_is_equation_3_and_may_have_a_given_peak(schedule, peak):
  shape = np.minimum(STEPS**-0.5, STEPS * 4000**-1.5)  # The paper's steps begin at 1.
  wanted = shape * (2.5 * 512**-0.5 if schedule == 'noam' else 0.003 * 4000**0.5)
  np.testing.assert_allclose(
    curve(schedule, STEPS - 1, warmup_steps=4000, **peak), wanted, rtol=1e-5
  )


@pytest.mark.parametrize(
  ('schedule', 'wanted'),
  [('cosine', [0, 0.005, 0.01, 0.005, 0]), ('constant', [0, 0.005, 0.01, 0.01, 0.01])],
)
def test_cosine_and_constant_rise_to_their_peak(schedule, wanted):
  np.testing.assert_allclose(
    curve(schedule, (0, 5, 10, 60, 110), peak_learning_rate=0.01, warmup_steps=10),
    wanted,
    atol=1e-8,
  )


@pytest.mark.parametrize('schedule', SCHEDULES)
def test_a_schedule_declares_whether_it_depends_on_train_steps(schedule):
  short, long = (
    curve(schedule, range(20), steps, warmup_steps=10) for steps in (20, 30)
  )
  assert np.any(short != long) == SCHEDULES[schedule]
  if schedule != 'noam':  # A warm-up that is longer than the run is linear.
    first = schedule == 'inverse_sqrt'  # Its first update is the paper's step 1.
    np.testing.assert_allclose(
      curve(schedule, range(9), 9, peak_learning_rate=0.01, warmup_steps=10),
      0.001 * (np.arange(9) + first),
      atol=1e-8,
    )


@pytest.mark.parametrize('clip_norm', [0.0, 0.5])
def test_optimizer_is_adam_after_clipping(clip_norm):
  config = OptimizerConfig(
    schedule='constant', peak_learning_rate=0.1, warmup_steps=1, clip_norm=clip_norm
  )
  params = {'a': jnp.array([1.0, 2.0, 3.0]), 'b': jnp.ones((2, 5))}
  gradients = {'a': jnp.array([3.0, 0.0, -4.0]), 'b': jnp.full((2, 5), 0.01)}
  norm = float(optax.tree.norm(gradients))
  schedule = make_schedule(config, 7, 1)
  ours, reference = (
    make_optimizer(config, schedule),
    optax.adam(schedule, 0.9, 0.98, 1e-9),
  )
  state, reference_state = ours.init(params), reference.init(params)
  # Gradients of one size would hide the clipping, since Adam divides by their size.
  for scale in (1.0, 0.02, 30.0):
    clipped = min(scale, clip_norm / norm) if clip_norm else scale
    given, kept = (
      jax.tree.map(lambda leaf, factor=factor: factor * leaf, gradients)
      for factor in (scale, clipped)
    )
    updates, state = ours.update(given, state, params)
    wanted, reference_state = reference.update(kept, reference_state, params)
    chex.assert_trees_all_close(updates, wanted, rtol=1e-5)


RATE = 0.01
MUON = OptimizerConfig(
  algorithm='muon', schedule='constant', peak_learning_rate=RATE, warmup_steps=1
)


@pytest.fixture(scope='module')
def params(model):
  return jax.jit(lambda: init_params(model, 3))()


@pytest.fixture(scope='module')
def gradients(params):
  """Returns three random gradients."""
  rng = np.random.default_rng(0)
  return tuple(
    jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), params)
    for _ in range(3)
  )


@functools.partial(jax.jit, static_argnums=0)
def three_updates(config, params, gradients):
  """Returns the third step of an optimizer, where the rate is at its peak."""
  optimizer = make_optimizer(config, make_schedule(config, 7, 1))
  state = optimizer.init(params)
  for gradient in gradients:
    updates, state = optimizer.update(gradient, state, params)
  return updates


def is_kernel(path):
  return path[-1].key == 'kernel'


def test_muon_equalizes_all_directions_of_a_matrix_and_adam_trains_other_parameters(
  params, gradients
):
  params, *gradients = (
    {
      'attention': tree['encoder_0']['self_attention'],
      'inner': tree['encoder_0']['feed_forward']['inner'],
      'table': tree['target_embedding'],
    }
    for tree in (params, *gradients)
  )
  reference = optax.nadam(make_schedule(MUON, 7, 1), 0.9, 0.98, 1e-9)
  state = reference.init(params)
  for gradient in gradients:
    wanted, state = reference.update(gradient, state, params)
  kernels = 0
  for (path, update), adams in zip(
    jax.tree_util.tree_leaves_with_path(three_updates(MUON, params, tuple(gradients))),
    jax.tree.leaves(wanted),
    strict=True,
  ):
    if not is_kernel(path):
      np.testing.assert_allclose(update, adams, rtol=1e-4, atol=1e-8)
      continue
    kernels += 1
    dim = 10  # The model's width: the last axis of these two kernels, the first of all others.
    ends = path[-2].key in ('output', 'outer')
    matrix = np.reshape(update, (-1, dim) if ends else (dim, -1))
    # Five Newton–Schulz iterations bring the singular values only near to 1.
    sizes = np.linalg.svd(matrix, compute_uv=False) / (
      RATE * 0.2 * max(matrix.shape) ** 0.5
    )
    assert sizes.min() > 0.5 and sizes.max() < 1.3, (path, sizes)
  assert kernels == 4 + 1


@pytest.mark.parametrize('algorithm', ['adam', 'muon'])
def test_weight_decay_applies_only_to_matrices(algorithm, params, gradients):
  params, *gradients = (
    {
      'table': tree['target_embedding'],
      'inner': tree['encoder_0']['feed_forward']['inner'],
    }
    for tree in (params, *gradients)
  )
  plain = dataclasses.replace(MUON, algorithm=algorithm)
  decaying = dataclasses.replace(plain, weight_decay=0.3)
  without, with_decay = (
    three_updates(config, params, tuple(gradients)) for config in (plain, decaying)
  )
  jax.tree_util.tree_map_with_path(
    lambda path, param, before, after: np.testing.assert_allclose(
      after - before, -RATE * 0.3 * param * is_kernel(path), atol=1e-6
    ),
    params,
    without,
    with_decay,
  )


@pytest.mark.long
@pytest.mark.parametrize('sizes', [(1, 2, 2), (2, 1, 2)])
def test_muon_is_the_same_on_any_mesh(sizes, params, gradients):
  mesh = make_mesh(MeshConfig(*sizes), 4, jax.devices()[:4])
  shardings = state_shardings(mesh, params, Transformer)
  assert any(
    not sharding.is_fully_replicated for sharding in jax.tree.leaves(shardings)
  )
  split = jax.device_put((params, gradients), (shardings, (shardings,) * 3))
  chex.assert_trees_all_close(
    three_updates(MUON, *split), three_updates(MUON, params, gradients), atol=1e-6
  )


OWN = OptimizerConfig(
  schedule=('my_optimizers:trapezoid', 0.5),
  algorithm='my_optimizers:lion',
  peak_learning_rate=0.01,
  warmup_steps=2,
  clip_norm=1.0,
)


def test_the_examples_of_the_page_are_a_trapezoid_and_lion(doc_plugins):
  np.testing.assert_allclose(
    curve(
      OWN.schedule, (0, 1, 2, 5, 8, 10), 10, peak_learning_rate=0.01, warmup_steps=2
    ),
    [0, 0.005, 0.01, 0.01, 0.004, 0],
    atol=1e-8,
  )
  assert Config(optimizer=OWN).plugin_kinds == {
    'my_optimizers:trapezoid': 'schedule',
    'my_optimizers:lion': 'algorithm',
  }
  params = {'a': jnp.array([0.3, 2.0])}
  optimizer = make_optimizer(OWN, lambda count: 0.25)
  updates, _ = optimizer.update(
    {'a': jnp.array([-3.0, 5.0])}, optimizer.init(params), params
  )
  np.testing.assert_allclose(updates['a'], [0.25, -0.25])


def test_a_custom_schedule_may_have_keyword_arguments():
  settings = OptimizerConfig(schedule=('my_optimizers:trapezoid', {'share': 0.3}))
  assert Config(optimizer=settings).plugin_kinds == {
    'my_optimizers:trapezoid': 'schedule'
  }


def test_the_example_of_frozen_parameters_changes_only_the_others(
  doc_plugins, params, gradients
):
  def updates(algorithm):
    schedule = ('my_optimizers:trapezoid', {'share': 0.5})
    config = dataclasses.replace(
      OWN, algorithm=algorithm, schedule=schedule, clip_norm=0.0
    )
    Config(optimizer=config)
    optimizer = make_optimizer(config, make_schedule(config, 8, 10))
    state = optimizer.init(params)
    return optimizer.update(gradients[0], state, params)[0], state

  (whole, all_state), (some, state) = map(
    updates, ('adam', ('my_freezing:frozen', {'pattern': 'embedding'}))
  )
  sizes = [
    sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (all_state, state)
  ]
  assert sizes[0] - sizes[1] >= 2 * params['target_embedding']['table'].size
  for name in params:
    wanted = (
      jax.tree.map(jnp.zeros_like, whole[name]) if 'embedding' in name else whole[name]
    )
    chex.assert_trees_all_equal(some[name], wanted)


@pytest.mark.long
def test_a_run_with_its_own_optimizer_is_resumed_bit_for_bit(doc_plugins, tmp_path):
  how = {
    'optimizer': OWN,
    'steps': 4,
    'checkpoint_every': 2,
    'eval_every': 4,
    'ema_decay': 0.9,
    'max_consecutive_nonfinite': 1,
  }
  with pytest.raises(InterruptedError):
    run(Bigrams(), tmp_path / 'parts', fatal=3, **how)
  for name in ('parts', 'whole'):
    run(Bigrams(), tmp_path / name, **how)
  chex.assert_trees_all_equal(
    final_state(tmp_path / 'parts'), final_state(tmp_path / 'whole')
  )


def nothing(optimizer, *_):
  pass


def failing(optimizer, *_):
  return optax.GradientTransformation(lambda params: 1 / 0, lambda *_: 1 / 0)


def pairs(optimizer, *_):
  return lambda count: jnp.stack([count, count])


@pytest.mark.parametrize(
  ('settings', 'fact'),
  [
    ({'schedule': 'no_module:f'}, 'the schedule no_module:f cannot be imported'),
    (
      {'schedule': 'linear'},
      'optimizer.schedule must be one of noam, .*, or MODULE:NAME',
    ),
    (
      {'schedule': ('my_optimizers:trapezoid', 1.0, 2.0)},
      r'1\.0, 2\.0\) cannot be built: TypeError',
    ),
    ({'schedule': f'{__name__}:nothing'}, 'nothing failed: TypeError'),
    ({'schedule': f'{__name__}:pairs'}, 'pairs must return .* to the learning rate'),
    (
      {'algorithm': ('lion', 1.0)},
      'optimizer.algorithm must be one of adam, muon, or MODULE',
    ),
    ({'algorithm': f'{__name__}:nothing'}, 'an optax.GradientTransformation; got None'),
    (
      {'algorithm': f'{__name__}:failing'},
      'the algorithm .*:failing failed: ZeroDivisionError',
    ),
  ],
)
def test_user_error_is_a_one_line_message_that_names_the_part(
  doc_plugins, settings, fact
):
  with pytest.raises(UserError, match=fact) as caught:
    config = Config(optimizer=OptimizerConfig(**settings)).optimizer
    make_optimizer(config, make_schedule(config, 7, 10)).init({})
  assert '\n' not in str(caught.value)
