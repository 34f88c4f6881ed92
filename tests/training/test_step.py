"""A training step is pure, and equals the whole-batch step on any devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.tiny_training import VOCABULARY, Settings, make_batch
from tests.training.bigram_model import Bigrams
from transformer.data.batch import BOS_ID
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops import losses
from transformer.ops.dropout import random_key
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh, sentence_mesh, state_shardings
from transformer.training.objective import Objective, cross_entropy, shift_right
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.step import init_state, make_eval_step, make_train_step
from transformer.training.training_setup import make_training_setup

CONSTANT = OptimizerConfig(schedule='constant', peak_learning_rate=0.01, warmup_steps=1)
# Rows of unequal weight, so that a mean of means would differ.
UNEQUAL = make_batch(0)._replace(
  target_segments=make_batch(0).target_segments * np.array([[1], [0], [1], [1]])
)


@functools.cache
def initial(model):
  return jax.jit(lambda: init_params(model, 3))()


def make(
  model, *, objective=None, seed=0, num_microbatches=1, optimizer=None, mesh=None
):
  optimizer = optimizer or make_optimizer(
    CONSTANT, make_schedule(CONSTANT, model.config.model_dim, 100)
  )
  state = init_state(initial(model), optimizer, TrainConfig())
  step = make_train_step(
    model,
    optimizer,
    TrainConfig(),
    objective=objective or cross_entropy(0.1),
    seed=seed,
    num_microbatches=num_microbatches,
    mesh=mesh or sentence_mesh(1),
  )
  return step, state


def test_inputs_are_targets_shifted_right():
  tokens = jnp.array([[5, 6, 2, 7, 2, 0, 0]])
  positions = jnp.array([[0, 1, 2, 0, 1, 0, 0]])
  np.testing.assert_array_equal(
    shift_right(tokens, positions), [[BOS_ID, 5, 6, BOS_ID, 7, BOS_ID, BOS_ID]]
  )


def test_step_is_pure_and_numbered_dropout_is_not_repeated():
  step, state = make(Bigrams())
  run, batch = jax.jit(step), make_batch(0)
  once, metrics = run(state, batch)
  again, _ = run(state, batch)
  chex.assert_trees_all_equal(once, again)
  assert int(once.step) == 1
  _, later = run(state._replace(step=jnp.int32(5)), batch)
  _, other_seed = jax.jit(make(Bigrams(), seed=1)[0])(state, batch)
  assert float(metrics['nll']) not in (float(later['nll']), float(other_seed['nll']))


def test_gradient_is_of_the_mean_over_real_tokens():
  model, batch = Bigrams(rate=0.0), make_batch(0)
  step, state = make(model, objective=cross_entropy(0.0))

  def mean_loss(params):
    x, output = model.apply(
      {'params': params},
      batch.source_tokens,
      None,
      None,
      shift_right(batch.target_tokens, batch.target_positions),
    )
    logits = jnp.einsum('BTD,ND->BTN', x, output)
    losses = optax.softmax_cross_entropy_with_integer_labels(
      logits, batch.target_tokens
    )
    real = batch.target_segments > 0
    return jnp.sum(losses * real) / jnp.sum(real)

  loss, gradients = jax.jit(jax.value_and_grad(mean_loss))(state.params)
  step = jax.jit(step)
  _, metrics = step(state, batch)
  assert float(metrics['weight']) == 4 * (3 + 5)
  assert float(metrics['source_tokens']) == 4 * (5 + 7)
  np.testing.assert_allclose(metrics['loss'] / metrics['weight'], loss, rtol=1e-5)
  np.testing.assert_allclose(
    metrics['gradient_norm'], optax.tree.norm(gradients), rtol=1e-4
  )
  # A batch of only padding has no gradient.
  after, _ = step(
    state, batch._replace(target_segments=np.zeros_like(batch.target_segments))
  )
  chex.assert_trees_all_equal(after.params, state.params)


@pytest.mark.parametrize('parts', [2, 4])
def test_microbatches_match_the_whole_batch(parts):
  # Plain gradient descent: Adam would hide the gradient's scale.
  whole, accumulated = (
    jax.jit(step)(state, UNEQUAL)
    for step, state in (
      make(Bigrams(rate=0.0), num_microbatches=number, optimizer=optax.sgd(1.0))
      for number in (1, parts)
    )
  )
  chex.assert_trees_all_close(
    whole[0].params, accumulated[0].params, rtol=1e-4, atol=1e-6
  )
  chex.assert_trees_all_close(whole[1], accumulated[1], rtol=1e-5)


def test_evaluation_is_of_the_whole_batch_without_smoothing_or_dropout():
  model, params = Bigrams(), initial(Bigrams())
  whole, parts = (
    jax.jit(make_eval_step(model, sentence_mesh(1), num_microbatches=number))(
      params, UNEQUAL
    )
    for number in (1, 2)
  )
  chex.assert_trees_all_close(parts, whole, rtol=1e-6)
  assert float(whole['loss']) == float(whole['nll'])
  smooth = cross_entropy(0.3).loss(model, params, UNEQUAL)
  assert float(smooth['loss']) != float(smooth['nll'])
  assert float(smooth['nll']) == pytest.approx(float(whole['nll']))


def drawn(model, params, batch, dropout_key, **_):
  """A loss that is a random number, which depends only on the dropout key."""
  number = jax.random.uniform(dropout_key)
  return {'loss': number, 'nll': number**2, 'weight': jnp.float32(1)}


def test_the_seed_of_a_run_determines_dropout():
  mesh, model, draws = (
    make_mesh(MeshConfig(data=1), 4, jax.devices()[:1]),
    Bigrams(),
    set(),
  )
  for seed in (0, 0, 1):
    setup = make_training_setup(Settings(seed=seed), model, mesh, Objective(drawn))
    step = setup.lower((4, 13, 11)).compile()
    draws.add(float(step(setup.first_state(initial(model)), make_batch(0))[1]['loss']))
  assert len(draws) == 2


def test_every_part_has_its_own_dropout():
  model, row = Bigrams(), jax.tree.map(lambda x: x[:1], make_batch(0))
  step, state = make(model, seed=5, num_microbatches=4)
  _, metrics = jax.jit(step)(
    state, jax.tree.map(lambda x: np.repeat(x, 4, axis=0), row)
  )
  key = jax.random.fold_in(random_key(5), state.step)
  loss_of = jax.jit(
    lambda key: cross_entropy(0.1).loss(model, state.params, row, key)['loss']
  )
  losses = [float(loss_of(jax.random.fold_in(key, part))) for part in range(4)]
  assert len(set(losses)) == 4
  assert float(metrics['loss']) == pytest.approx(sum(losses), rel=1e-5)


@pytest.mark.parametrize(
  ('sizes', 'positions'), [((4, 1, 1), 2), ((1, 4, 1), 2), ((2, 1, 2), 1)]
)
def test_each_device_computes_the_loss_in_chunks_of_the_same_size_as_one_device(
  monkeypatch, sizes, positions
):
  monkeypatch.setattr(losses, '_CHUNK_POSITIONS', 4)
  mesh = make_mesh(MeshConfig(*sizes), rows=8)
  step, state = make(Bigrams(), mesh=mesh)
  text = jax.jit(step).lower(state, make_batch(0, rows=8)).as_text()
  for count in (1, 2):
    assert (f'tensor<8x{count}x{VOCABULARY}xf32>' in text) == (count == positions)


def test_a_mesh_has_the_given_devices():
  mesh = make_mesh(MeshConfig(fsdp=2), rows=6, devices=jax.devices()[2:])
  assert mesh.shape == {'data': 1, 'fsdp': 2, 'tensor': 1}
  assert set(mesh.devices.flat) == set(jax.devices()[2:])


@pytest.mark.parametrize(
  ('config', 'message'),
  [
    (MeshConfig(data=3), 'must use all 4 devices; got data=3'),
    (
      MeshConfig(data=-1, tensor=3),
      'must use all 4 devices; got data=-1, fsdp=1, tensor=3',
    ),
    (MeshConfig(data=-1, tensor=8), 'must use all 4 devices'),
    (MeshConfig(data=2, fsdp=2), 'data × mesh.fsdp = 4 must divide the rows.* = 6'),
  ],
)
def test_mesh_that_does_not_fit_is_rejected(config, message):
  with pytest.raises(UserError, match=message):
    make_mesh(config, rows=6)


@pytest.mark.parametrize(
  'changes',
  [
    {'attention_bias': 'all'},
    {'share_embeddings': False, 'tie_output': False},
    {
      'activation': 'swiglu',
      'rms_norm': True,
      'positions': 'rotary',
      'query_key_norm': True,
    },
    {'share_embeddings': False, 'tie_output': True},
  ],
  ids=str,
)
def test_every_matrix_and_table_of_a_model_is_split_along_both_axes(changes):
  model = Transformer(
    ModelConfig(num_layers=1, model_dim=8, ff_dim=12, num_heads=4, **changes), 20, 20
  )
  mesh = make_mesh(MeshConfig(data=1, fsdp=2, tensor=2), 2, jax.devices()[:4])
  shapes = jax.eval_shape(lambda: init_params(model, 0))
  shardings = jax.tree.leaves(state_shardings(mesh, shapes, model))
  names = {
    jax.tree_util.keystr(path): (leaf.ndim, sharding.spec)
    for (path, leaf), sharding in zip(
      jax.tree_util.tree_leaves_with_path(shapes), shardings, strict=True
    )
  }
  matrices = {
    name: spec
    for name, (axes, spec) in names.items()
    if axes > 1 and 'bias' not in name
  }
  assert len(matrices) > 10
  for name, spec in matrices.items():
    assert {'fsdp', 'tensor'} <= set(spec), name


@pytest.mark.parametrize('skipping', [False, True])
def test_the_moving_average_soon_forgets_the_initial_parameters(skipping):
  def falling(model, params, *_, **__):
    loss = params['layer']['a'].sum()
    return {'loss': loss, 'nll': loss, 'weight': jnp.float32(1)}

  optimizer = optax.sgd(2.0)  # Each training step takes 2 from each parameter.
  params = {'layer': {'a': jnp.array([3.0, 50.0])}}
  config = TrainConfig(ema_decay=0.25, max_consecutive_nonfinite=int(skipping))
  state = init_state(params, optimizer, config)
  step = jax.jit(
    make_train_step(
      None,
      optimizer,
      config,
      objective=Objective(falling),
      seed=0,
      mesh=sentence_mesh(1),
    )
  )
  wanted = current = np.array([3.0, 50.0])
  for decay in (1 / 10, 2 / 11, 3 / 12, 0.25, 0.25):
    state, _ = step(state, make_batch(0))
    current = current - 2.0
    wanted = decay * wanted + (1 - decay) * current
    np.testing.assert_allclose(state.params['layer']['a'], current, rtol=1e-6)
    np.testing.assert_allclose(state.average['layer']['a'], wanted, rtol=1e-6)
  assert state.eval_params is state.average
  plain = init_state(params, optimizer, TrainConfig())
  assert plain.average is None and plain.eval_params is plain.params


def test_initial_parameters_depend_only_on_the_seed():
  first, again, other = (init_params(Bigrams(), seed) for seed in (3, 3, 4))
  chex.assert_trees_all_equal(first, again)
  assert not np.array_equal(
    first['target_embedding']['table'], other['target_embedding']['table']
  )
