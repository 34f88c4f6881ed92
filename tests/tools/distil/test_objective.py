"""A training step that learns from teachers, word by word."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.loss_arrays import B, N, T, arrays, naive_loss, positions_at_once
from tests.tiny_training import (
  ROWS,
  SOURCE_LENGTH,
  TARGET_LENGTH,
  VOCABULARY,
  Settings,
  make_batch,
)
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops.losses import chunked_loss
from transformer.tools.distil.objective import distillation_loss, token_loss
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh
from transformer.training.objective import Objective, cross_entropy
from transformer.training.training_setup import make_training_setup

STUDENT = Transformer(
  ModelConfig(
    num_layers=1, model_dim=10, ff_dim=14, num_heads=2, dropout=0.0, norm_position='pre'
  ),
  VOCABULARY,
)
# Another shape, with dropout, which a teacher must not use.
TEACHER = Transformer(
  ModelConfig(num_layers=1, model_dim=6, ff_dim=22, num_heads=3, dropout=0.5),
  VOCABULARY,
)


def teacher_outputs():
  """Returns what two teachers of other widths give: outputs and projections."""
  rng = np.random.default_rng(1)
  return [
    (
      jnp.asarray(rng.normal(size=(B, T, dim)), jnp.float32),
      jnp.asarray(rng.normal(size=(N, dim)), jnp.float32),
    )
    for dim in (3, 7)
  ]


def distilled(teachers, smoothing=0.0, teacher_weight=0.5, temperature=1.0):
  def loss(x, output, targets, weights):
    by_position = (targets, [own for own, _ in teachers])
    return chunked_loss(
      token_loss(smoothing, teacher_weight, temperature),
      x,
      output,
      weights,
      by_position,
      [projection for _, projection in teachers],
    )['loss']

  return loss


def naive_distillation(teachers, smoothing, teacher_weight, temperature):
  """Computes the loss of Kim and Rush, 2016, section 3.1, from all logits at once."""

  def loss(x, output, targets, weights):
    log_probs = jax.nn.log_softmax(x @ output.T / temperature)
    wanted = jnp.mean(
      jnp.stack(
        [
          jax.nn.softmax(own @ projection.T / temperature)
          for own, projection in teachers
        ]
      ),
      axis=0,
    )
    term = -(temperature**2) * jnp.sum(weights[..., None] * wanted * log_probs)
    return (1 - teacher_weight) * naive_loss(
      x, output, targets, weights, smoothing
    ) + teacher_weight * term

  return loss


@pytest.mark.parametrize(
  ('count', 'terms'),
  [(2, (0.0, 0.25, 1.0)), (6, (0.1, 0.5, 2.5)), (6, (0.1, 1.0, 0.5))],
)
def test_the_loss_and_its_gradients_match_all_logits(monkeypatch, count, terms):
  positions_at_once(monkeypatch, count)
  chunked, wanted = (
    jax.jit(jax.value_and_grad(make(teacher_outputs(), *terms), (0, 1)))(*arrays())
    for make in (distilled, naive_distillation)
  )
  chex.assert_trees_all_close(chunked, wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope='module')
def params():
  rng = np.random.default_rng(2)
  return [
    jax.tree.map(
      lambda leaf: jnp.asarray(rng.normal(scale=0.3, size=leaf.shape), leaf.dtype),
      jax.eval_shape(lambda model=model: init_params(model, 0)),
    )
    for model in (STUDENT, TEACHER, STUDENT)
  ]


def objective_of(teachers, teacher_weight=0.5, temperature=1.0):
  models, params = zip(*teachers, strict=True)
  return Objective(
    distillation_loss(models, 0.1, teacher_weight, temperature), frozen=params
  )


def train_once(state_params, objective, num_microbatches=1, mesh=None):
  """Takes one training step on one device or a mesh; returns the state and the metrics."""
  settings = Settings(
    train=TrainConfig(tokens_per_batch=ROWS * TARGET_LENGTH),
    optimizer=OptimizerConfig(
      schedule='constant',
      peak_learning_rate=0.01,
      warmup_steps=1,
      num_microbatches=num_microbatches,
    ),
  )
  mesh = make_mesh(
    mesh or MeshConfig(data=1),
    ROWS // num_microbatches,
    None if mesh else jax.devices()[:1],
  )
  setup = make_training_setup(settings, STUDENT, mesh, objective)
  step = setup.lower((ROWS, SOURCE_LENGTH, TARGET_LENGTH)).compile()
  return step(
    setup.first_state(state_params), make_batch(0), *setup.objective.arguments
  )


def test_the_loss_is_a_mixture_and_teachers_have_no_dropout(params):
  student, teacher, _ = params

  def losses_of(objective):
    totals = jax.jit(
      lambda key: objective.loss(
        STUDENT, student, make_batch(0), key, frozen=objective.frozen
      )
    )
    return [float(totals(jax.random.key(key))['loss']) for key in (0, 1)]

  losses = {
    teacher_weight: losses_of(objective_of([(TEACHER, teacher)], teacher_weight))
    for teacher_weight in (0.5, 1.0)
  }
  losses[0.0] = losses_of(cross_entropy(0.1))
  for one, other in losses.values():
    # The student has no dropout either, so the key changes nothing.
    assert one == other
  assert losses[0.5][0] == pytest.approx(
    (losses[0.0][0] + losses[1.0][0]) / 2, rel=1e-6
  )
  assert losses[1.0][0] != pytest.approx(losses[0.0][0], rel=1e-3)
  # With all of the loss from teachers, the text counts nothing, however it is smoothed.
  smoother = Objective(distillation_loss([TEACHER], 0.9, 1.0, 1.0), frozen=(teacher,))
  assert losses_of(smoother) == losses[1.0]


@pytest.mark.long
def test_microbatches_and_meshes_compute_the_same_training_step(params):
  student, teacher, other = params
  teachers = [(TEACHER, teacher), (STUDENT, other)]
  taught = objective_of(teachers, temperature=2.0)
  whole, metrics = train_once(student, taught)
  for again, sums in (
    train_once(student, taught, num_microbatches=2),
    train_once(student, taught, mesh=MeshConfig(data=2, fsdp=1, tensor=2)),
    train_once(student, taught, mesh=MeshConfig(data=1, fsdp=4)),
  ):
    chex.assert_trees_all_close(
      jax.device_get(sums['loss']), metrics['loss'], rtol=1e-5
    )
    chex.assert_trees_all_close(
      jax.device_get(again.params), whole.params, rtol=1e-3, atol=2e-5
    )
