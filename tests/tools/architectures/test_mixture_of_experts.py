"""A mixture of experts: its gates, its balance, and that padding counts for nothing."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools.architectures import tiny_models
from transformer.data.batch import Batch
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.tools.architectures.mixture_of_experts import (
  MixtureOfExperts,
  MoETransformer,
  load_balance,
)
from transformer.training.objective import forward

MODULE = 'transformer.tools.architectures.mixture_of_experts:MoETransformer'
SETTINGS = {'num_experts': 3, 'top_k': 2, 'balance_weight': 0.5}


@pytest.fixture(scope='module')
def tiny():
  return tiny_models.build(MoETransformer, SETTINGS)


def test_one_expert_is_the_dense_layer():
  batch = tiny_models.packed()
  one, params = tiny_models.build(MoETransformer, {'num_experts': 1, 'top_k': 1})
  dense = {
    name: {**layer, 'feed_forward': layer['feed_forward']['expert_0']}
    if 'feed_forward' in layer
    else layer
    for name, layer in params.items()
  }
  model, _ = tiny_models.build(Transformer)
  np.testing.assert_allclose(
    tiny_models.logits(one, params, batch),
    tiny_models.logits(model, dense, batch),
    rtol=1e-5,
    atol=1e-6,
  )


@pytest.mark.parametrize('top_k', [1, 2, 3])
def test_the_output_is_the_sum_of_the_best_experts_by_their_gates(tiny, top_k):
  model, params = tiny
  params = params['encoder_0']['feed_forward']
  x_TD = np.random.default_rng(0).normal(size=(7, 16)).astype(np.float32)
  found = MixtureOfExperts(model.config, 3, top_k, 0.5).apply(
    {'params': params}, x_TD, deterministic=True
  )
  scores = np.exp(x_TD @ params['router']['kernel'])
  scores /= scores.sum(-1, keepdims=True)
  for x, score, y in zip(x_TD, scores, found, strict=True):
    best = np.argsort(score)[-top_k:]
    total = score[best].sum() if top_k > 1 else 1.0
    wanted = np.zeros(16)
    for expert in best:
      inner, outer = (params[f'expert_{expert}'][name] for name in ('inner', 'outer'))
      h = np.maximum(x @ inner['kernel'] + inner['bias'], 0.0)
      wanted += score[expert] / total * (h @ outer['kernel'] + outer['bias'])
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_the_balance_is_one_for_uniform_routing_and_the_number_of_experts_for_a_collapse():
  tokens = jnp.array([True] * 6 + [False] * 3)
  uniform = jnp.eye(3)[
    jnp.array([0, 1, 2, 0, 1, 2, 0, 0, 0])
  ]  # Padding is not balanced.
  assert load_balance(jnp.full((9, 3), 1 / 3), uniform, tokens) == pytest.approx(1.0)
  collapsed = jnp.eye(3)[jnp.zeros(9, int)]
  assert load_balance(collapsed, collapsed, tokens) == pytest.approx(3.0)
  assert load_balance(uniform, uniform, jnp.zeros(9, bool)) == 0.0


def test_padding_is_excluded_from_the_training_loss(tiny):
  model, params = tiny
  row = tiny_models.packed()
  longer = [np.pad(array, ((0, 1), (0, 5))) for array in row]
  losses = jax.jit(lambda *batch: forward(model, params, Batch(*batch))[2])
  whole, padded = losses(*row), losses(*longer)
  assert whole.keys() == {'load_balance'}
  np.testing.assert_allclose(padded['load_balance'], whole['load_balance'], rtol=1e-5)
  # Two stacks of two layers; each has a balance of about 1, and of 3 if one expert had all.
  assert 0.5 * 4 * 0.8 < whole['load_balance'] < 0.5 * 4 * 3


def test_the_router_learns_from_the_text_with_one_expert_a_token():
  model, params = tiny_models.build(MoETransformer, {'top_k': 1, 'balance_weight': 0.0})

  def total(params):
    return jnp.sum(tiny_models.logits(model, params, tiny_models.packed()) ** 2)

  gradient = jax.jit(jax.grad(total))(params)['decoder_1']['feed_forward']['router'][
    'kernel'
  ]
  assert np.all(np.abs(gradient).max(axis=0) > 0.1), gradient


def test_neighbors_and_padding_change_nothing(tiny):
  tiny_models.check_neighbors_and_padding_change_nothing(*tiny)


def test_steps_are_teacher_forcing(tiny):
  tiny_models.check_decoding_is_teacher_forcing(*tiny)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'top_k': 5}, 'top_k must be from 1 to num_experts'),
    ({'top_k': 0}, 'top_k must be from 1'),
    ({'balance_weight': -1.0}, 'balance_weight must be at least 0'),
  ],
)
def test_settings_out_of_range_are_rejected(settings, message):
  with pytest.raises(UserError, match=message):
    tiny_models.build(MoETransformer, settings)


@pytest.mark.long
def test_training_steps_on_eight_devices_match_one():
  tiny_models.check_eight_devices_are_one(MODULE, SETTINGS)


@pytest.mark.long
def test_a_run_is_trained_resumed_and_searched_and_logs_its_balance(
  train, evaluate, folder, tmp_path
):
  metrics = tiny_models.check_commands(
    train,
    evaluate,
    folder,
    tmp_path,
    {'module': f'({MODULE!r}, {SETTINGS})', 'remat': True},
  )
  balances = [
    row['train/load_balance']
    for row in map(json.loads, metrics.splitlines())
    if 'train/load_balance' in row
  ]
  assert balances and all(0.5 < balance < 3.0 for balance in balances)
