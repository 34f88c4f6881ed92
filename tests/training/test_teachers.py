"""An update that learns from teachers, word by word."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny_training import ROWS, SOURCE_LENGTH, TARGET_LENGTH, VOCABULARY, Settings, make_batch
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.ops.losses import LossOptions
from transformer.training.compilation import (
  NO_TEACHERS,
  Teachers,
  first_state,
  lower_train_step,
  make_setup,
)
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.memory_check import needs_of
from transformer.training.mesh import make_mesh, replicated
from transformer.training.step import batch_loss, init_params

STUDENT = Transformer(ModelConfig(num_layers=1, model_dim=10, ff_dim=14, num_heads=2, dropout=0.0,
                                  norm='pre'), VOCABULARY)
# Another shape, with dropout, which a teacher must not use.
TEACHER = Transformer(ModelConfig(num_layers=1, model_dim=6, ff_dim=22, num_heads=3, dropout=0.5),
                      VOCABULARY)


@pytest.fixture(scope='module')
def params():
  return [jax.jit(lambda model=model, seed=seed: init_params(model, seed))()
          for model, seed in ((STUDENT, 3), (TEACHER, 4), (STUDENT, 5))]


def update(state_params, teachers, accumulate=1, mesh=None, **train):
  """Makes one update on one device or a mesh; returns the state and the metrics."""
  settings = Settings(
      train=TrainConfig(tokens_per_batch=ROWS * TARGET_LENGTH, teachers=('a',) if teachers else (),
                        **train),
      optimizer=OptimizerConfig(schedule='constant', peak_learning_rate=0.01, warmup_steps=1,
                                accumulate=accumulate))
  mesh = make_mesh(mesh or MeshConfig(data=1), ROWS // accumulate,
                   None if mesh else jax.devices()[:1])
  taught = Teachers(*zip(*teachers, strict=True)) if teachers else NO_TEACHERS
  taught = taught._replace(params=jax.device_put(tuple(taught.params), replicated(mesh)))
  setup = make_setup(settings, STUDENT, mesh, taught)
  step = lower_train_step(settings, STUDENT, setup,
                          (ROWS, SOURCE_LENGTH, TARGET_LENGTH)).compile()
  state = jax.jit(lambda: first_state(settings, setup.optimizer, state_params), out_shardings=(
      jax.tree.map(lambda leaf: leaf.sharding, setup.state)))()
  return step(state, make_batch(0), *setup.teacher_arguments)


def test_a_student_equal_to_its_teacher_stays_as_it_is(params):
  student, _, other = params
  _, metrics = update(student, [(STUDENT, student)], teacher_share=1.0)
  assert float(metrics['gradient_norm']) < 1e-5
  _, metrics = update(student, [(STUDENT, other)], teacher_share=1.0)
  assert float(metrics['gradient_norm']) > 1e-2


def test_the_loss_is_a_mixture_and_teachers_have_no_dropout(params):
  student, teacher, _ = params

  def losses_of(**terms):
    pairs = [(TEACHER, teacher)] if terms['teacher_share'] else []
    totals = jax.jit(lambda key: batch_loss(STUDENT, student, make_batch(0), LossOptions(**terms),
                                            key, pairs))
    return [float(totals(jax.random.key(key))['loss']) for key in (0, 1)]

  losses = {share: losses_of(teacher_share=share) for share in (0.0, 0.5, 1.0)}
  for one, other in losses.values():
    assert one == other  # The student has no dropout either, so the key changes nothing.
  assert losses[0.5][0] == pytest.approx((losses[0.0][0] + losses[1.0][0]) / 2, rel=1e-6)
  assert losses[1.0][0] != pytest.approx(losses[0.0][0], rel=1e-3)
  # Twins of R-Drop have the same teachers.
  assert losses_of(teacher_share=1.0, consistency=1.0) == pytest.approx(losses[1.0], rel=1e-5)


def test_teachers_are_read_only_where_the_config_names_them(params):
  student, *_ = params
  plain, with_share = (update(student, [], **more)[0].params
                       for more in ({}, {'teacher_share': 0.9, 'teacher_temperature': 3.0}))
  chex.assert_trees_all_equal(plain, with_share)


@pytest.mark.long
def test_parts_of_a_batch_and_twins_and_meshes_make_the_same_update(params):
  student, teacher, other = params
  teachers, options = [(TEACHER, teacher), (STUDENT, other)], {'teacher_temperature': 2.0}
  whole, metrics = update(student, teachers, **options)
  for again, found in (update(student, teachers, accumulate=2, **options),
                       update(student, teachers, r_drop=1e-12, **options),
                       update(student, teachers, mesh=MeshConfig(data=2, fsdp=1, tensor=2),
                              **options),
                       update(student, teachers, mesh=MeshConfig(data=1, fsdp=4), **options)):
    chex.assert_trees_all_close(jax.device_get(found['loss']), metrics['loss'], rtol=1e-5)
    chex.assert_trees_all_close(jax.device_get(again.params), whole.params, rtol=1e-3, atol=2e-5)


def test_the_memory_of_teachers_counts_while_an_evaluation_runs(params):
  _, teacher, _ = params
  mesh = make_mesh(MeshConfig(data=1), ROWS, jax.devices()[:1])
  setup = make_setup(Settings(), STUDENT, mesh,
                     Teachers([TEACHER], [jax.device_put(teacher, replicated(mesh))]))
  program = jax.jit(lambda x: x).lower(jnp.zeros(3)).compile()
  with_teacher, without = (needs_of(resident, ('evaluation', program, setup.state.best_params))[0]
                           for resident in ((setup.state, setup.teacher_arguments), setup.state))
  assert with_teacher.total - without.total == 4 * sum(map(np.size, jax.tree.leaves(teacher)))
