"""R-Drop penalizes differences between the predictions of two passes."""

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.ops.loss_arrays import arrays, naive_loss, positions_at_once
from tests.tiny_training import make_batch
from tests.training.bigram_model import Bigrams
from transformer.config import Config
from transformer.errors import UserError
from transformer.model.transformer import init_params
from transformer.ops.losses import chunked_loss, smoothed_cross_entropy, token_losses
from transformer.tools.r_drop import r_drop, with_divergence
from transformer.training.objective import cross_entropy


def twins():
  """Returns rows in pairs, with equal targets and weights and different decoder outputs."""
  x, output, targets, weights = arrays()
  return (
    x,
    output,
    jnp.repeat(targets[::2], 2, axis=0),
    jnp.repeat(weights[::2], 2, axis=0),
  )


def consistent(x, output, targets, weights, smoothing, alpha):
  function = with_divergence(
    lambda y, targets, _: token_losses(y, targets, smoothing), alpha
  )
  return chunked_loss(function, x, output, weights, targets)


def naive_r_drop(x, output, targets, weights, smoothing, alpha):
  """Computes half of the loss of Liang et al., 2021, equations 2 to 4, from all logits at once."""
  log_p, log_q = (
    jax.nn.log_softmax(jnp.einsum('...D,ND->...N', rows, output))
    for rows in (x[::2], x[1::2])
  )
  divergence = jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1) + jnp.sum(
    jnp.exp(log_q) * (log_q - log_p), axis=-1
  )
  return naive_loss(x, output, targets, weights, smoothing) + alpha / 2 * jnp.sum(
    divergence * weights[::2]
  )


@pytest.mark.parametrize(('count', 'smoothing'), [(2, 0.1), (6, 0.0)])
def test_the_loss_and_its_gradients_match_all_logits(monkeypatch, count, smoothing):
  positions_at_once(monkeypatch, count)
  given = twins()
  chunked, wanted = (
    jax.value_and_grad(
      lambda x, output, loss=loss: loss(x, output, *given[2:], smoothing, 3.0), (0, 1)
    )(*given[:2])
    for loss in (lambda *given: consistent(*given)['loss'], naive_r_drop)
  )
  chex.assert_trees_all_close(chunked, wanted, rtol=1e-5, atol=1e-5)
  plain = smoothed_cross_entropy(*given, smoothing)
  assert chunked[0] > plain['loss'] * 1.1
  chex.assert_trees_all_close(
    consistent(*given, smoothing, 3.0)['nll'], plain['nll'], rtol=1e-6
  )


def test_twins_that_agree_cost_nothing():
  x, *rest = twins()
  same = jnp.repeat(x[::2], 2, axis=0), *rest
  chex.assert_trees_all_close(
    consistent(*same, 0.1, 5.0), smoothed_cross_entropy(*same, 0.1), rtol=1e-6
  )


def test_the_objective_compares_two_passes_of_each_sentence():
  params, batch, key = init_params(Bigrams(), 3), make_batch(0), jax.random.key(1)
  sums = {
    (rate, alpha): r_drop(Config(), alpha).loss(Bigrams(rate), params, batch, key)
    for rate, alpha in ((0.0, 5.0), (0.2, 1.0), (0.2, 5.0))
  }
  plain = cross_entropy(Config().train.label_smoothing).loss(
    Bigrams(0.0), params, batch, key
  )
  chex.assert_trees_all_close(sums[0.0, 5.0], plain, rtol=1e-5)
  assert sums[0.2, 5.0]['loss'] > sums[0.2, 1.0]['loss'] + 0.01
  assert sums[0.2, 5.0]['nll'] == pytest.approx(sums[0.2, 1.0]['nll'])


@pytest.mark.parametrize('alpha', [0.0, -0.1, float('nan'), float('inf')])
def test_an_alpha_out_of_range_is_rejected(alpha):
  with pytest.raises(UserError, match=f'must be above 0 and finite; got {alpha}'):
    r_drop(Config(), alpha)


@pytest.mark.parametrize('rate', [0.0, 0.1])
def test_zero_dropout_logs_a_warning(caplog, rate):
  r_drop(Config.from_dict({'model': {'dropout': 0.0, 'activation_dropout': rate}}))
  assert ('set model.dropout' in caplog.text) == (not rate)
