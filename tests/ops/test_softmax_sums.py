"""The sums of a softmax from one reduction, which only GPUs use, match float64."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops import losses
from transformer.ops.losses import softmax_sums, softmax_sums_in_one_pass, token_losses
from transformer.testing.tolerance import rounding_tolerance

N = 1009
# Roundings on a logit's way into a sum: of each addition, two exponentials and two products.
ROUNDINGS = 5 * N
BOTH = (softmax_sums, softmax_sums_in_one_pass)


def logits_BTN():
  """Returns logits whose largest is first, last, anywhere, or shared, of several sizes."""
  logits = np.random.default_rng(0).normal(size=(2, 7, N))
  logits[0, 0] = np.sort(logits[0, 0])
  logits[0, 1] = np.sort(logits[0, 1])[::-1]
  logits[0, 2] = 0.5
  logits[0, 3] *= 1e4
  logits[0, 4, 3] = 1e4
  logits[0, 5, 3] = -1e4
  logits[0, 6] -= 1e4
  logits[1] *= 10
  return np.float32(logits)


def as_on_a_gpu(monkeypatch):
  def dependent(*arrays, **branches):
    return branches.get('cuda', branches['default'])(*arrays)

  monkeypatch.setattr(losses.jax.lax, 'platform_dependent', dependent)


def reduce_in_pairs(operands, starts, combine, dimensions):
  """Computes `jax.lax.reduce` of the last axis as a tree, which its definition allows."""
  assert dimensions == [operands[0].ndim - 1]
  while operands[0].shape[-1] > 1:
    if operands[0].shape[-1] % 2:
      padding = [(0, 0)] * dimensions[0] + [(0, 1)]
      operands = [
        jnp.pad(part, padding, constant_values=start)
        for part, start in zip(operands, starts, strict=True)
      ]
    operands = combine(
      [y[..., ::2] for y in operands], [y[..., 1::2] for y in operands]
    )
  return tuple(part[..., 0] for part in operands)


@pytest.fixture(params=['in order', 'in pairs'])
def any_order(request, monkeypatch):
  if request.param == 'in pairs':
    monkeypatch.setattr(losses.jax.lax, 'reduce', reduce_in_pairs)


@pytest.mark.usefixtures('any_order')
@pytest.mark.parametrize('sums_of', BOTH)
def test_the_sums_match_float64(sums_of):
  logits = logits_BTN()
  exact = np.float64(logits)
  peak = np.max(exact, axis=-1)
  # A new function, since `jit` keeps programs by function.
  got_peak, got_total, got_sum = jax.jit(lambda y: sums_of(y))(logits)
  assert np.array_equal(got_peak, peak)
  total = np.sum(np.exp(exact - peak[..., None]), axis=-1)
  # An exponent has the rounding of its logit's distance to the maximum.
  relative = rounding_tolerance(ROUNDINGS, 1.0) + rounding_tolerance(1, 1.0) * np.ptp(
    exact, axis=-1
  )
  assert np.all(np.abs(got_total - total) <= relative * total)
  difference = np.abs(got_sum - np.sum(exact, axis=-1))
  assert np.all(
    difference <= rounding_tolerance(N, 1.0) * np.sum(np.abs(exact), axis=-1)
  )


@pytest.mark.usefixtures('any_order')
@pytest.mark.parametrize('sums_of', BOTH)
def test_excluded_tokens_count_nothing(sums_of):
  logits = logits_BTN()
  excluded = np.isin(np.arange(N), [0, 1, 5, 6, 7, 8, N - 2, N - 1])
  some = np.where(excluded, -np.inf, logits)
  peak, total, logits_sum = jax.jit(lambda y: sums_of(y))(some)
  wanted_peak, wanted_total, _ = jax.jit(softmax_sums)(logits[..., ~excluded])
  assert np.array_equal(peak, wanted_peak)
  np.testing.assert_allclose(
    total, wanted_total, rtol=rounding_tolerance(ROUNDINGS, 1.0)
  )
  assert np.all(np.isneginf(logits_sum))


@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_losses_and_gradients_of_gpus_match_float64(monkeypatch, smoothing):
  logits = logits_BTN()
  targets = np.random.default_rng(1).integers(0, N, logits.shape[:2])
  weights = np.ones(logits.shape[:2], np.float32)
  weights[0, 1:4] = 0.0

  def loss_and_nll(logits):
    loss, nll = token_losses(logits, jnp.asarray(targets), smoothing)
    return jnp.sum(loss * weights), (loss, nll)

  as_on_a_gpu(monkeypatch)
  (_, (loss, nll)), gradient = jax.jit(jax.value_and_grad(loss_and_nll, has_aux=True))(
    logits
  )
  exact = np.float64(logits)
  exact -= exact.max(axis=-1, keepdims=True)
  log_probs = exact - np.log(np.sum(np.exp(exact), axis=-1, keepdims=True))
  wanted = np.full(logits.shape, smoothing / N)
  np.put_along_axis(wanted, targets[..., None], 1 - smoothing + smoothing / N, axis=-1)
  exact_nll = -np.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
  largest = np.abs(np.float64(logits)).max(axis=-1)
  bound = rounding_tolerance(ROUNDINGS, 1.0) + rounding_tolerance(N, largest)
  assert np.all(np.abs(nll - exact_nll) <= bound)
  assert np.all(np.abs(loss + np.sum(wanted * log_probs, axis=-1)) <= bound)
  error = (np.exp(log_probs) - wanted) * weights[..., None]
  bound = rounding_tolerance(ROUNDINGS, 1.0) + rounding_tolerance(
    1, 2 * largest[..., None]
  )
  bound = bound * (np.exp(log_probs) + wanted) + np.finfo(np.float32).tiny
  assert np.all(np.abs(gradient - error) <= bound)
  assert not np.any(gradient[weights == 0])


def test_second_derivatives_in_forward_and_reverse_mode():
  logits_TN = jnp.asarray(logits_BTN()[1, :, :13])
  tangent_TN = jnp.cos(jnp.arange(logits_TN.size, dtype=jnp.float32)).reshape(7, 13)

  def derivatives(sums_of):
    def norm(logits):
      return sum(jnp.sum(jnp.sin(part)) for part in sums_of(logits))

    penalty = jax.grad(lambda y: jnp.sum(jax.grad(norm)(y) ** 2))
    return penalty(logits_TN), jax.jvp(jax.grad(norm), (logits_TN,), (tangent_TN,))

  near = {
    'rtol': rounding_tolerance(13 * 13, 1.0),
    'atol': rounding_tolerance(13 * 13, 130.0),
  }
  results = [jax.jit(derivatives, static_argnums=0)(f) for f in BOTH]
  chex.assert_trees_all_close(*results, **near)


@pytest.mark.parametrize(('platform', 'times'), [('cuda', 1), ('cpu', 3), ('tpu', 3)])
def test_only_the_program_for_gpus_has_one_reduction(platform, times):
  logits = jnp.asarray(logits_BTN())
  targets = jnp.zeros(logits.shape[:2], jnp.int32)
  traced = jax.jit(lambda y: token_losses(y, targets, 0.1)).trace(logits)
  text = traced.lower(lowering_platforms=(platform,)).as_text()
  assert len(re.findall(r'stablehlo\.reduce\(.*tensor<2x7x1009xf32>', text)) == times


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float64'])
def test_losses_have_the_type_of_the_logits(dtype):
  with jax.enable_x64(dtype == 'float64'):
    logits = jnp.asarray(logits_BTN()[:, :, :11], dtype)
    targets = jnp.zeros((2, 7), jnp.int32)
    loss, nll = jax.jit(token_losses, static_argnums=2)(logits, targets, 0.1)
    assert loss.dtype == nll.dtype == dtype
