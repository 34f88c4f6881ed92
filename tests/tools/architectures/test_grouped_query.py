"""Grouped-query attention: with all heads it is multi-head attention; its caches are smaller."""

import jax
import numpy as np
import pytest

from tests.tools.architectures import tiny_models
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.tools.architectures.grouped_query import GroupedQueryTransformer

MODULE = 'transformer.tools.architectures.grouped_query:GroupedQueryTransformer'
SETTINGS = {'kv_heads': 2, 'position_divisor': 2.0}


@pytest.fixture(scope='module')
def tiny():
  return tiny_models.build(GroupedQueryTransformer, SETTINGS)


def test_with_all_heads_it_is_the_transformer():
  batch = tiny_models.packed()
  model, params = tiny_models.build(Transformer)
  grouped, same = tiny_models.build(GroupedQueryTransformer, {'kv_heads': 4})
  assert jax.tree.structure(same) == jax.tree.structure(params)
  wanted = tiny_models.logits(model, params, batch)
  np.testing.assert_array_equal(tiny_models.logits(grouped, params, batch), wanted)
  scaled, _ = tiny_models.build(
    GroupedQueryTransformer, {'kv_heads': 4, 'position_divisor': 2.0}
  )
  assert not np.allclose(tiny_models.logits(scaled, params, batch), wanted, atol=1e-2)


def test_query_heads_share_the_heads_that_copies_would_have(tiny):
  model, params = tiny
  full, _ = tiny_models.build(
    GroupedQueryTransformer, {'kv_heads': 4, 'position_divisor': 2.0}
  )

  def copied(path, leaf):
    is_shared = path[-2].key in ('key', 'value')
    return np.repeat(leaf, 2, axis=-2) if is_shared else leaf

  copies = jax.tree_util.tree_map_with_path(copied, params)
  batch = tiny_models.packed()
  np.testing.assert_allclose(
    tiny_models.logits(model, params, batch),
    tiny_models.logits(full, copies, batch),
    rtol=1e-4,
    atol=1e-5,
  )


def test_a_divisor_of_two_halves_the_rotation_angles(tiny):
  model, params = tiny
  plain, _ = tiny_models.build(GroupedQueryTransformer, {'kv_heads': 2})
  batch = tiny_models.packed()
  doubled = [
    2 * array if place in (2, 5) else array for place, array in enumerate(batch)
  ]
  np.testing.assert_allclose(
    tiny_models.logits(model, params, doubled),
    tiny_models.logits(plain, params, batch),
    rtol=1e-5,
    atol=1e-5,
  )


def test_caches_have_only_the_shared_heads_and_steps_match_teacher_forcing(tiny):
  state = tiny_models.check_decoding_is_teacher_forcing(*tiny)
  for cache in state.caches:
    assert cache.keys.shape == (2, 2, 4, 5 * tiny_models.W)
    assert cache.values.shape == (2, 2, 5 * tiny_models.W, 4)


def test_neighbors_and_padding_change_nothing(tiny):
  tiny_models.check_neighbors_and_padding_change_nothing(*tiny)


def test_flops_are_counted_without_the_missing_heads():
  config = ModelConfig(**tiny_models.SIZES)
  counts = [
    GroupedQueryTransformer(config, 37, kv_heads=heads).flops() for heads in (4, 1)
  ]
  assert counts[0] == Transformer(config, 37).flops()
  # Three of four heads of keys and values: a factor 6, 16 · 4 weights each, in two layers.
  missing = 6 * 2 * 2 * 3 * 16 * 4
  assert np.subtract(*counts).tolist() == [2 * missing, missing]


@pytest.mark.parametrize(
  ('settings', 'positions', 'message'),
  [
    ({'kv_heads': 3}, 'rotary', 'kv_heads must divide num_heads'),
    ({'position_divisor': 0.0}, 'rotary', 'must be above 0'),
    ({'position_divisor': 2.0}, 'sinusoidal', 'set model.positions=rotary'),
  ],
)
def test_settings_without_an_effect_are_rejected(settings, positions, message):
  with pytest.raises(UserError, match=message):
    tiny_models.build(GroupedQueryTransformer, settings, positions=positions)


@pytest.mark.long
def test_training_steps_on_eight_devices_match_one():
  tiny_models.check_eight_devices_are_one(MODULE, SETTINGS)


@pytest.mark.long
def test_a_run_is_trained_resumed_and_searched(train, evaluate, folder, tmp_path):
  tiny_models.check_commands(
    train,
    evaluate,
    folder,
    tmp_path,
    {
      'positions': 'rotary',
      'module': f'({MODULE!r}, {{"kv_heads": 1, "position_divisor": 2.0}})',
    },
  )
