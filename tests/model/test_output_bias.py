"""A bias of the logits: one number for each token, in training, in scoring and in search alike."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from tests.model.conftest import B, D, N, T, build
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops import linear
from transformer.ops.losses import smoothed_cross_entropy
from transformer.training.config import MeshConfig, OptimizerConfig
from transformer.training.mesh import make_mesh, state_shardings
from transformer.training.optimizer import make_optimizer, make_schedule


def naive(model, params, batch, targets_BT, weights_BT, smoothing):
  """Returns the smoothed cross entropy from logits that are a product and a sum."""
  x_BTD = model.apply({'params': params}, *batch)[0][..., :D]
  table = (
    params['target_embedding']['table'] if model.config.tie_output else params['output']
  )
  logits_BTN = x_BTD.astype(jnp.float32) @ table.T + params['output_bias'][None, None]
  labels_BTN = optax.smooth_labels(jax.nn.one_hot(targets_BT, N), smoothing)
  return jnp.sum(weights_BT * optax.softmax_cross_entropy(logits_BTN, labels_BTN))


def of_batch(model, params, batch, targets_BT, weights_BT, smoothing):
  return smoothed_cross_entropy(
    *model.apply({'params': params}, *batch), targets_BT, weights_BT, smoothing
  )['loss']


@pytest.mark.long(but=('True',))
@pytest.mark.parametrize('tie', [True, False])
def test_the_loss_and_its_gradient_match_the_naive_formula(batch, tie):
  tiny = build(output_bias=True, tie_output=tie, num_layers=1)
  targets_BT = np.random.default_rng(5).integers(4, N, (B, T))
  weights_BT = (batch[4] > 0).astype(np.float32)

  def gradient(loss):
    return jax.jit(
      jax.value_and_grad(
        lambda params: loss(tiny.model, params, batch, targets_BT, weights_BT, 0.1)
      )
    )(tiny.params)

  found, wanted = gradient(of_batch), gradient(naive)
  chex.assert_trees_all_close(found, wanted, rtol=1e-4, atol=1e-4)
  assert np.all(found[1]['output_bias'] != 0)
  # All probabilities sum to one, and so do all labels.
  np.testing.assert_allclose(found[1]['output_bias'].sum(), 0, atol=1e-3)


def test_the_loss_of_16_bits_has_the_bias_of_32():
  bias_N = jnp.array([10.03, -3.3, 0.1])
  x, output = linear.fold_bias(
    jnp.zeros((2, D), jnp.bfloat16), jnp.ones((3, D)), bias_N
  )
  found, gradient = jax.jit(
    jax.value_and_grad(
      lambda bias_N: linear.logits(*linear.fold_bias(x[:, :D], output[:, :D], bias_N))[
        0, 0
      ]
    )
  )(bias_N)
  np.testing.assert_allclose(
    linear.logits(x, output), np.tile(bias_N, (2, 1)), rtol=1e-4
  )
  np.testing.assert_allclose((found, *gradient), (10.03, 1, 0, 0), rtol=1e-4, atol=1e-6)


def test_it_begins_at_zero_and_is_a_bias_to_the_optimizer_and_the_mesh():
  model = Transformer(
    ModelConfig(num_layers=1, model_dim=8, ff_dim=8, num_heads=2, output_bias=True), 36
  )
  bias_N = jax.jit(lambda: init_params(model, 0)['output_bias'])()
  assert bias_N.shape == (36,) and not bias_N.any()
  params = jax.eval_shape(lambda: init_params(model, 0))
  # Weight decay leaves it out: without a gradient it stays, while kernels shrink.
  shardings = state_shardings(
    make_mesh(MeshConfig(data=1, fsdp=2, tensor=2), 2), params, model
  )
  assert shardings['output_bias'].spec == PartitionSpec('tensor')
  params = {'output_bias': jnp.ones(36), 'inner': {'kernel': jnp.ones((8, 8))}}
  config = OptimizerConfig(
    schedule='constant', peak_learning_rate=0.1, warmup_steps=1, weight_decay=0.5
  )
  optimizer = make_optimizer(config, make_schedule(config, 8, 10))
  state = optimizer.init(params)
  for _ in range(2):
    updates, state = optimizer.update(
      jax.tree.map(jnp.zeros_like, params), state, params
    )
  assert not updates['output_bias'].any()
  assert updates['inner']['kernel'].all()
