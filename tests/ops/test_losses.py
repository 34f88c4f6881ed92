"""The chunked loss is optax's cross entropy, and so are its gradients."""

import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.ops.loss_arrays import B, D, N, T, arrays, naive_loss, positions_at_once
from transformer.ops import losses
from transformer.ops.losses import chunked_loss as loss_in_chunks
from transformer.ops.losses import smoothed_cross_entropy as cross_entropy
from transformer.ops.losses import token_losses
from transformer.testing.tolerance import rounding_tolerance


def gradients(loss, smoothing, scale=1.0):
  return jax.jit(
    jax.value_and_grad(
      lambda x, output, targets, weights: (
        scale * loss(x, output, targets, weights, smoothing)
      ),
      (0, 1),
    )
  )


def smoothed_loss(*given):
  return cross_entropy(*given)['loss']


def with_squares(logits, by_position, factors_N):
  """A loss of a user: cross entropy, and squares of the logits by two kinds of factors."""
  targets, factors = by_position
  loss, nll = token_losses(logits, targets, 0.1)
  products = jnp.einsum('...,N->...N', factors, factors_N)
  return 0.3 * loss + jnp.sum(products * logits**2, axis=-1), nll


@pytest.mark.parametrize('smoothing', [0.0, 0.1, 0.5])
def test_it_is_optax_cross_entropy_with_and_without_smoothed_labels(smoothing):
  x, output, targets, weights = arrays()
  losses_BT = optax.softmax_cross_entropy_with_integer_labels(x @ output.T, targets)
  wanted = {
    'loss': naive_loss(x, output, targets, weights, smoothing),
    'nll': jnp.sum(losses_BT * weights),
    'weight': jnp.sum(weights),
  }
  sums = cross_entropy(x, output, targets, weights, smoothing)
  chex.assert_trees_all_close(sums, wanted, rtol=1e-6)


@pytest.mark.parametrize(
  ('first', 'positions', 'smoothing'),
  [
    (0, B, 0.0),
    (0, 2 * B, 0.1),
    (0, 6 * B, 0.1),
    # Five positions, which the size of a chunk does not divide.
    (1, 1, 0.1),
    (1, 2 * B, 0.0),
    (1, 4 * B, 0.1),
    (1, 2**30, 0.1),
  ],
)
def test_values_and_gradients_match_the_unchunked_loss(
  monkeypatch, first, positions, smoothing
):
  monkeypatch.setattr(losses, '_CHUNK_POSITIONS', positions)
  x, output, targets, weights = arrays()
  given = x[:, first:], output, targets[:, first:], weights[:, first:]
  chex.assert_trees_all_close(
    gradients(smoothed_loss, smoothing)(*given),
    gradients(naive_loss, smoothing)(*given),
    rtol=1e-5,
    atol=1e-6,
  )


def test_all_logits_never_exist_at_once(monkeypatch):
  positions_at_once(monkeypatch, 1)

  def largest(loss):
    text = str(
      jax.make_jaxpr(jax.grad(lambda *given: loss(*given, 0.1), (0, 1)))(*arrays())
    )
    shapes = re.findall(r'(?:f32|bool|i32)\[([\d,]+)\]', text)
    return max(math.prod(map(int, shape.split(','))) for shape in shapes)

  assert largest(naive_loss) >= B * T * N
  assert largest(smoothed_loss) < B * T * N


def test_a_position_of_weight_zero_gets_no_gradient_and_does_not_count():
  x, output, targets, weights = arrays()
  run = gradients(smoothed_loss, 0.1)
  loss, (gradient_x, gradient_output) = run(x, output, targets, weights)
  none = weights == 0.0
  assert not np.any(gradient_x[none])
  assert np.all(np.any(gradient_x[~none], axis=-1))
  other_x = jnp.where(none[..., None], 7.0, x)
  other_targets = jnp.where(none, 3, targets)
  again, (again_x, again_output) = run(other_x, output, other_targets, weights)
  chex.assert_trees_all_equal(
    (again, again_x, again_output), (loss, gradient_x, gradient_output)
  )
  sums = cross_entropy(x, output, targets, ~none, 0.1)
  assert sums['weight'] == np.sum(~none)


def test_gradients_of_rows_are_rows_of_the_gradient_under_vmap_and_pmap():
  x, output, targets, weights = arrays()

  def of_row(x, targets, weights):
    return jax.grad(
      lambda x, output: smoothed_loss(
        x[None], output, targets[None], weights[None], 0.1
      ),
      (0, 1),
    )(x, output)

  _, whole = gradients(smoothed_loss, 0.1)(x, output, targets, weights)
  for lift in (jax.vmap, jax.pmap):
    gradient_x, gradient_output = lift(of_row)(x, targets, weights)
    chex.assert_trees_all_close(
      (gradient_x, jnp.sum(gradient_output, 0)), whole, rtol=1e-5, atol=1e-6
    )


def test_huge_logits_stay_finite():
  x, output, targets, weights = arrays()
  for scale in (1e4, 1e15):
    given = x * scale, output, targets, weights
    result = gradients(smoothed_loss, 0.1)(*given)
    chex.assert_tree_all_finite(result)
    chex.assert_trees_all_close(result, gradients(naive_loss, 0.1)(*given), rtol=1e-4)


@pytest.mark.parametrize('output_dtype', ['float32', 'bfloat16'])
def test_16_bit_activations_get_16_bit_gradients_and_float32_sums(output_dtype):
  x, output, targets, weights = arrays(jnp.bfloat16)
  output = output.astype(jnp.bfloat16).astype(output_dtype)
  loss, (gradient_x, gradient_output) = gradients(smoothed_loss, 0.1)(
    x, output, targets, weights
  )
  assert (loss.dtype, gradient_x.dtype, gradient_output.dtype) == (
    jnp.float32,
    jnp.bfloat16,
    jnp.dtype(output_dtype),
  )
  wanted, wanted_gradients = gradients(naive_loss, 0.1)(
    x.astype(jnp.float32), output.astype(jnp.float32), targets, weights
  )
  chex.assert_trees_all_close(loss, wanted, rtol=1e-5)
  got = jax.tree.map(lambda g: g.astype(jnp.float32), (gradient_x, gradient_output))
  chex.assert_trees_all_close(got, wanted_gradients, rtol=0.02, atol=0.02)
  # All tokens are equally likely, so that every error is exact in 16 bits.
  gradient = jax.grad(
    lambda output: smoothed_loss(x, output, targets, jnp.ones((B, T)))
  )(jnp.zeros((16, D)))
  wanted = np.einsum(
    'BTN,BTD->ND', 1 / 16 - np.eye(16)[targets], np.asarray(x, np.float64)
  )
  chex.assert_trees_all_close(gradient, np.float32(wanted), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_values_are_the_same_eager_jitted_differentiated_and_sharded(smoothing):
  given = arrays()

  def sums(*given):
    return cross_entropy(*given, smoothing)

  def with_gradient(*given):
    return jax.grad(
      lambda *given: (sums(*given)['loss'], sums(*given)), (0, 1), has_aux=True
    )(*given)

  eager_gradients, eager = with_gradient(*given)
  mesh = Mesh(np.array(jax.devices()[:4]), ('rows',))
  rows, whole = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (('rows',), ()))
  sharded = jax.device_put(given, (rows, whole, rows, rows))
  for result in (jax.jit(with_gradient)(*given), jax.jit(with_gradient)(*sharded)):
    chex.assert_trees_all_close(result, (eager_gradients, eager), rtol=1e-5, atol=1e-6)
  for result in (sums(*given), jax.jit(sums)(*given), jax.jit(sums)(*sharded)):
    chex.assert_trees_all_close(result, eager, rtol=1e-6)


def test_a_loss_of_a_user_gets_its_positions_and_its_gradients(monkeypatch):
  positions_at_once(monkeypatch, 2)
  x, output, targets, weights = arrays()
  factors_BT, factors_N = weights + 1.0, jnp.arange(N) / N

  def chunked(x, output):
    by_position = (targets, factors_BT)
    return loss_in_chunks(with_squares, x, output, weights, by_position, factors_N)[
      'loss'
    ]

  def naive(x, output):
    squares = (x @ output.T) ** 2
    return 0.3 * naive_loss(x, output, targets, weights, 0.1) + jnp.einsum(
      'BT,BT,N,BTN->', weights, factors_BT, factors_N, squares
    )

  chex.assert_trees_all_close(
    *(
      jax.jit(jax.value_and_grad(loss, (0, 1)))(x, output) for loss in (chunked, naive)
    ),
    rtol=rounding_tolerance(B * T * N, 1.0),
    atol=rounding_tolerance(B * T, size=600.0),
  )


def test_the_nll_the_weight_and_the_other_arrays_of_a_loss_have_no_gradient():
  x, output, targets, weights = arrays()

  def with_factors(factors):
    by_position = (targets, factors[0])
    return loss_in_chunks(with_squares, x, output, weights, by_position, factors[1])[
      'loss'
    ]

  factors = jnp.ones((B, T)), jnp.ones(N)
  chex.assert_trees_all_equal(
    jax.grad(with_factors)(factors), jax.tree.map(jnp.zeros_like, factors)
  )
  for name in ('nll', 'weight'):
    gradient = jax.grad(lambda *given, name=name: cross_entropy(*given)[name], (0, 1))(
      x, output, targets, weights
    )
    chex.assert_trees_all_equal(gradient, jax.tree.map(jnp.zeros_like, (x, output)))
