"""A prefix LM: what its positions see, and its search."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import pack
from tests.tools.architectures import tiny_models
from transformer.errors import UserError
from transformer.model.inspection import (
  embeddings,
  layer_logits,
  layer_outputs,
  override_embeddings,
)
from transformer.tools.architectures.prefix_lm import PrefixLM

MODULE = 'transformer.tools.architectures.prefix_lm:PrefixLM'


@pytest.fixture(scope='module')
def tiny():
  return tiny_models.build(PrefixLM)


def test_targets_see_the_whole_source_and_their_past_and_sources_no_target(tiny):
  model, params = tiny
  sources, targets = np.arange(4, 9), np.arange(10, 17)
  batch = pack([[(sources, targets)]], 5, 7)
  inputs = batch[3][0]

  def outputs(table_ND):
    changed = {**params, 'target_embedding': {'table': table_ND}}
    return model.apply({'params': changed}, *batch)[0][0].sum(-1)

  # A row of the table belongs to one place, since all tokens differ.
  jacobian_TND = jax.jit(jax.jacrev(outputs))(params['target_embedding']['table'])
  seen_TN = np.any(jacobian_TND, axis=-1)
  assert seen_TN[:, sources].all()
  np.testing.assert_array_equal(seen_TN[:, inputs], np.tri(7, dtype=bool))

  def encoded(tokens_BS):
    return model.apply({'params': params}, tokens_BS, *batch[1:3], method='encode')

  # The first source position sees the last one.
  other = batch[0].copy()
  other[0, -1] = 30
  assert np.all(np.any(encoded(batch[0]) != encoded(other), axis=-1))


def test_a_target_that_equals_its_source_is_distinguished_from_it(tiny):
  model, params = tiny
  without = {**params, 'source_side': 0.0 * params['source_side']}
  batch = tiny_models.packed()
  assert not np.allclose(
    tiny_models.logits(model, params, batch),
    tiny_models.logits(model, without, batch),
    atol=1e-2,
  )


def test_there_is_one_stack_and_its_flops_are_counted(tiny):
  model, params = tiny
  assert {name.partition('_')[0] for name in params} == {'decoder', 'source', 'target'}
  weights = sum(
    leaf.size
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    if path[-1].key == 'kernel'
  )
  source, target = model.flops()
  assert (source, target - source) == (6.0 * weights, 6.0 * 16 * tiny_models.N)


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {
      'norm_position': 'post',
      'positions': 'sinusoidal',
      'share_embeddings': False,
      'tie_output': False,
      'output_bias': True,
    },
  ],
)
def test_neighbors_padding_and_caches_change_nothing(changes):
  model, params = tiny_models.build(PrefixLM, **changes)
  tiny_models.check_neighbors_and_padding_change_nothing(model, params)
  tiny_models.check_decoding_is_teacher_forcing(model, params)


def test_layers_of_both_sides_and_gradients_of_their_embeddings_are_found(tiny):
  model, params = tiny
  batch = tiny_models.packed()
  encoder = layer_outputs(model, params, *batch[:3], layers=True)
  decoder = layer_outputs(model, params, *batch, layers=True)
  assert list(encoder) == list(decoder) == ['embedding', 'decoder_0', 'decoder_1']
  assert encoder['decoder_1'].shape[1] == 11 and decoder['decoder_1'].shape[1] == 17
  np.testing.assert_allclose(
    layer_logits(model, params, decoder['decoder_1']),
    tiny_models.logits(model, params, batch),
    rtol=1e-4,
    atol=1e-4,
  )

  @jax.jit
  @jax.grad
  def slopes(given):
    with override_embeddings(params, given, 'float32'):
      x_BTD, _ = model.apply({'params': params}, *batch)
    return jnp.sum(x_BTD[0, :7] ** 2)  # The first pair: 5 source tokens, 7 targets.

  found = slopes(embeddings(model, params, *batch))
  for side, length in ((found.source, 5), (found.target, 7)):
    assert np.any(side[0, :length], axis=-1).all()
    assert not np.any(side[0, length:]) and not np.any(side[1])


def test_relative_positions_are_rejected():
  with pytest.raises(UserError, match='no relative positions; set '):
    tiny_models.build(PrefixLM, positions='relative')


def test_layers_that_are_computed_again_have_the_same_gradients(tiny):
  model, params = tiny
  again, _ = tiny_models.build(PrefixLM, remat=True)

  def gradients(model):
    def total(params):
      return jnp.sum(tiny_models.logits(model, params, tiny_models.packed()) ** 2)

    return jax.jit(jax.grad(total))(params)

  chex.assert_trees_all_close(gradients(again), gradients(model), rtol=1e-3, atol=1e-2)


@pytest.mark.long
def test_training_steps_on_eight_devices_match_one():
  tiny_models.check_eight_devices_are_one(MODULE, {})


@pytest.mark.long
def test_a_run_is_trained_resumed_and_searched(train, evaluate, folder, tmp_path):
  tiny_models.check_commands(train, evaluate, folder, tmp_path, {'module': MODULE})
