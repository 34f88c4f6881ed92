"""An update that trains one head of cross-attention towards links."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny_training import ROWS, SOURCE_LENGTH, TARGET_LENGTH, VOCABULARY, Settings, make_batch
from transformer.model.attention_weights import attention_weights
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.ops.losses import LossOptions
from transformer.training.compilation import first_state, lower_train_step, make_setup
from transformer.training.config import MeshConfig, OptimizerConfig, TrainConfig
from transformer.training.mesh import make_mesh
from transformer.training.step import batch_loss, init_params, shift_right

CONFIG = ModelConfig(num_layers=2, model_dim=10, ff_dim=14, num_heads=2, dropout=0.0, norm='pre')
MODEL = Transformer(CONFIG, VOCABULARY)
LAYER = 2
GUIDED = LossOptions(alignment_layer=LAYER, alignment_weight=0.5)


def linked(number=0):
  """Returns a batch in which some tokens of each pair are linked."""
  batch = make_batch(number)
  same_BTS = batch.target_segments[:, :, None] == batch.source_segments[:, None, :]
  some_BTS = np.random.default_rng(number).random(same_BTS.shape) < 0.3
  return batch._replace(links=same_BTS & some_BTS & (batch.target_segments > 0)[:, :, None])


@pytest.fixture(scope='module')
def params():
  # Wider than trained ones, so that attention is not even.
  return jax.tree.map(lambda leaf: 2.0 * leaf, jax.jit(lambda: init_params(MODEL, 3))())


def update(state_params, batch, layer=LAYER, *, accumulate=1, mesh=None, shape=(), **train):
  """Makes one update on one device or a mesh; returns the state and the metrics."""
  model = Transformer(dataclasses.replace(CONFIG, **dict(shape)), VOCABULARY)
  settings = Settings(
      train=TrainConfig(tokens_per_batch=ROWS * TARGET_LENGTH, alignment_layer=layer, **train),
      optimizer=OptimizerConfig(schedule='constant', peak_learning_rate=0.01, warmup_steps=1,
                                accumulate=accumulate))
  mesh = make_mesh(mesh or MeshConfig(data=1), ROWS // accumulate,
                   None if mesh else jax.devices()[:1])
  setup = make_setup(settings, model, mesh)
  step = lower_train_step(settings, model, setup,
                          (ROWS, SOURCE_LENGTH, TARGET_LENGTH)).compile()
  state = jax.jit(lambda: first_state(settings, setup.optimizer, state_params), out_shardings=(
      jax.tree.map(lambda leaf: leaf.sharding, setup.state)))()
  return jax.device_get(step(state, batch))


def naive(params, batch):
  """Returns the alignment loss from the weights of attention themselves."""
  inputs = shift_right(batch.target_tokens, batch.target_positions)
  weights_BTS = attention_weights(MODEL, params, *batch[:3], inputs, *batch[4:6], layer=LAYER - 1,
                                  head=0).cross
  wanted_BTS = batch.links / np.maximum(batch.links.sum(-1, keepdims=True), 1)
  return -jnp.sum(wanted_BTS * jnp.log(jnp.where(batch.links, weights_BTS, 1.0)))


def test_the_loss_and_its_gradient_are_those_of_the_first_head_of_the_layer(params):
  batch = linked()

  def difference(params):
    with_links, without = (batch_loss(MODEL, params, batch, options)['loss']
                           for options in (GUIDED, LossOptions()))
    return with_links - without

  found, wanted = (jax.jit(jax.value_and_grad(function))(params) for function in (
      difference, lambda params: 0.5 * naive(params, batch)))
  chex.assert_trees_all_close(found, wanted, rtol=1e-4, atol=1e-4)
  totals_of = jax.jit(lambda options: batch_loss(MODEL, params, batch, options),
                      static_argnums=0)
  totals = totals_of(GUIDED)
  assert float(totals['linked']) == np.count_nonzero(batch.links.any(-1))
  assert float(totals['alignment_loss']) == pytest.approx(2 * float(wanted[0]), rel=1e-5)
  assert float(totals['weight']) == np.count_nonzero(batch.target_segments)
  lower = totals_of(GUIDED._replace(alignment_layer=1))
  assert float(lower['alignment_loss']) != pytest.approx(float(totals['alignment_loss']), rel=1e-3)


@pytest.mark.parametrize('weight', [0.0, 0.7])
def test_without_weight_or_links_the_update_is_the_plain_one(params, weight):
  batch = linked()
  if weight:
    batch = batch._replace(links=np.zeros_like(batch.links))
  plain, _ = update(params, make_batch(0), 0)
  found, metrics = update(params, batch, alignment_weight=weight)
  chex.assert_trees_all_equal(found, plain)
  assert bool(metrics['linked']) == (not weight) and 'alignment_loss' in metrics
  other, _ = update(params, linked(), alignment_weight=0.7)
  with pytest.raises(AssertionError):
    chex.assert_trees_all_equal(other, plain)


def test_pairs_that_share_a_row_are_linked_as_if_alone(params):
  batch = linked()
  loss_of = jax.jit(lambda batch: batch_loss(MODEL, params, batch, GUIDED)['alignment_loss'])
  together, alone = float(loss_of(batch)), 0.0
  for segment in (1, 2):
    alone += float(loss_of(batch._replace(
        source_segments=np.where(batch.source_segments == segment, segment, 0),
        target_segments=np.where(batch.target_segments == segment, segment, 0))))
  assert together == pytest.approx(alone, rel=1e-5)
  # Links to another pair or to padding are ignored, and so are tokens of padding.
  same_BTS = batch.target_segments[:, :, None] == batch.source_segments[:, None, :]
  real_BTS = same_BTS & (batch.source_segments > 0)[:, None, :]
  assert float(loss_of(batch._replace(links=batch.links | ~real_BTS))) == together
  other = make_batch(5)
  assert float(loss_of(batch._replace(
      source_tokens=np.where(batch.source_segments, batch.source_tokens, other.source_tokens),
      target_tokens=np.where(batch.target_segments, batch.target_tokens, other.target_tokens)
  ))) == together


def test_the_head_that_is_trained_has_no_dropout(params):
  # Attention's output is multiplied by 0, so dropout could change the trained scores alone.
  deaf = jax.tree_util.tree_map_with_path(
      lambda path, leaf: 0 * leaf if 'attention' in str(path) and 'output' in str(path) else leaf,
      params)
  model = Transformer(dataclasses.replace(CONFIG, attention_dropout=0.6), VOCABULARY)
  wanted = float(batch_loss(MODEL, deaf, linked(), GUIDED)['alignment_loss'])
  for key in (0, 1):
    found = batch_loss(model, deaf, linked(), GUIDED, jax.random.key(key))['alignment_loss']
    assert float(found) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.long
def test_parts_of_a_batch_and_twins_and_meshes_and_remat_make_the_same_update(params):
  batch, options = linked(), {'alignment_weight': 0.7}
  whole, metrics = update(params, batch, **options)
  for again, found in (
      update(params, batch, accumulate=2, **options),
      update(params, batch, r_drop=1e-12, **options),
      update(params, batch, shape={'remat': True}, **options),
      update(params, batch, mesh=MeshConfig(data=2, fsdp=1, tensor=2), **options),
      update(params, batch, mesh=MeshConfig(data=1, fsdp=4), **options)):
    for name in ('loss', 'alignment_loss', 'linked'):
      chex.assert_trees_all_close(found[name], metrics[name], rtol=1e-5)
    chex.assert_trees_all_close(again.params, whole.params, rtol=1e-3, atol=2e-5)


def test_16_bits_change_the_loss_little_and_its_gradient_stays_finite(params):
  half = Transformer(dataclasses.replace(CONFIG, dtype='bfloat16'), VOCABULARY)

  def loss(params, model):
    return batch_loss(model, params, linked(), GUIDED)['alignment_loss']

  found, gradients = jax.jit(jax.value_and_grad(lambda params: loss(params, half)))(params)
  wanted = jax.jit(lambda params: loss(params, MODEL))(params)
  assert found.dtype == jnp.float32 and float(found) == pytest.approx(float(wanted), rel=0.05)
  chex.assert_tree_all_finite(gradients)
