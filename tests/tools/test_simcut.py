"""SimCut penalizes predictions that change when some tokens are dropped."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.loss_arrays import arrays, naive_loss, positions_at_once
from tests.tiny_training import VOCABULARY, make_batch
from transformer.config import Config
from transformer.data.batch import EOS_ID
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops.linear import logits
from transformer.ops.losses import chunked_loss
from transformer.tools.simcut import cutoff_inputs, simcut, simcut_loss
from transformer.training.objective import cross_entropy, duplicate_batch, forward

SHAPES = {
  'tied': {'output_bias': True},
  'apart': {'share_embeddings': False, 'tie_output': False},
}


def tiny(**shape):
  """Returns a Transformer without dropout, and parameters of which none is zero."""
  model = Transformer(
    ModelConfig(
      num_layers=1, model_dim=10, ff_dim=14, num_heads=2, dropout=0.0, **shape
    ),
    VOCABULARY,
  )
  return model, jax.tree.map(
    lambda leaf: leaf + 0.1, jax.jit(lambda: init_params(model, 0))()
  )


def decoded(model, params, batch):
  return jax.jit(lambda params: forward(model, params, batch)[:2])(params)


def naive_simcut(x, output, targets, weights, smoothing, alpha):
  """Computes equation 3 of Gao et al., 2022, from all logits at once."""
  log_p, log_q = (
    jax.nn.log_softmax(jnp.einsum('...D,ND->...N', rows, output))
    for rows in (x[::2], x[1::2])
  )
  divergence = jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)
  return naive_loss(
    x[::2], output, targets[::2], weights[::2], smoothing
  ) + alpha * jnp.sum(divergence * weights[::2])


@pytest.mark.parametrize(('count', 'smoothing'), [(2, 0.1), (6, 0.0)])
def test_the_loss_and_its_gradients_match_the_formula(monkeypatch, count, smoothing):
  positions_at_once(monkeypatch, count)
  x, output, targets, weights = arrays()
  targets, weights = (jnp.repeat(array[::2], 2, axis=0) for array in (targets, weights))

  def chunked(x, output):
    return chunked_loss(simcut_loss(smoothing, 3.0), x, output, weights / 2, targets)[
      'loss'
    ]

  chex.assert_trees_all_close(
    *(
      jax.value_and_grad(loss, (0, 1))(x, output)
      for loss in (
        chunked,
        lambda x, output: naive_simcut(x, output, targets, weights, smoothing, 3.0),
      )
    ),
    rtol=1e-5,
    atol=1e-5,
  )


@pytest.mark.parametrize('shape', SHAPES)
def test_a_dropped_token_has_a_zero_embedding_only_in_the_second_pass(shape):
  model, params = tiny(**SHAPES[shape])
  batch = make_batch(0)
  doubled, _ = duplicate_batch(batch)
  wider, padded, cut = cutoff_inputs(model, params, doubled, jax.random.key(3), 0.5)
  for name in ('source_tokens', 'target_tokens'):
    before, after = getattr(doubled, name), getattr(cut, name)
    chex.assert_trees_all_equal(after[::2], before[::2])
    is_cut = after[1::2] != before[1::2]
    assert np.all(after[1::2][is_cut] == VOCABULARY)
    assert not np.any(is_cut & (before[1::2] == EOS_ID))
    assert 0.2 < np.mean(is_cut[getattr(batch, name) != 0]) < 0.8
  whole, first = (
    logits(*decoded(*given)) for given in ((model, params, batch), (wider, padded, cut))
  )
  chex.assert_trees_all_close(first[::2, :, :-1], whole, rtol=1e-4, atol=1e-5)


def test_the_sides_of_a_pair_drop_different_positions():
  model, params = tiny()
  tokens = np.full((2, 40), 7, np.int32)
  batch = make_batch(0)._replace(source_tokens=tokens, target_tokens=tokens)
  _, _, cut = cutoff_inputs(model, params, batch, jax.random.key(3), 0.5)
  assert np.any(cut.source_tokens != cut.target_tokens)


def test_a_model_reads_zeros_for_a_dropped_token():
  model, params = tiny(share_embeddings=False)
  batch, name = make_batch(0), 'source_embedding'
  wider, padded, _ = cutoff_inputs(model, params, batch, None, 0.5)
  cut = batch._replace(
    source_tokens=jnp.where(batch.source_tokens == 7, VOCABULARY, batch.source_tokens)
  )
  zeroed = {**params, name: {'table': params[name]['table'].at[7].set(0.0)}}
  without = decoded(model, zeroed, batch)[0]
  chex.assert_trees_all_close(
    decoded(wider, padded, cut)[0], without, rtol=1e-4, atol=1e-5
  )
  assert not np.allclose(without, decoded(model, params, batch)[0])


def test_the_objective_is_the_formula_and_counts_each_token_once():
  model, params = tiny()
  batch, key = make_batch(0), jax.random.key(1)

  def sums(alpha, key):
    return jax.jit(simcut(Config(), alpha, 0.5).loss, static_argnums=0)(
      model, params, batch, key
    )

  plain = jax.jit(cross_entropy(Config().train.label_smoothing).loss, static_argnums=0)(
    model, params, batch
  )
  chex.assert_trees_all_close(sums(3.0, None), plain, rtol=1e-4)
  one, three = (sums(alpha, key)['loss'] - plain['loss'] for alpha in (1.0, 3.0))
  assert one > 0.01
  np.testing.assert_allclose(three / one, 3.0, rtol=1e-3)


@pytest.mark.parametrize(
  ('alpha', 'cutoff_probability', 'words'),
  [
    (0.0, 0.05, 'alpha'),
    (float('inf'), 0.05, 'alpha'),
    (3.0, 0.0, 'cutoff_probability'),
    (3.0, 1.0, 'cutoff_probability'),
  ],
)
def test_numbers_out_of_range_are_rejected(alpha, cutoff_probability, words):
  with pytest.raises(UserError, match=words):
    simcut(Config(), alpha, cutoff_probability)
