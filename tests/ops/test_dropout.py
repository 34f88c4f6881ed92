"""Dropout uses JAX's random bits, with any sharding, and keeps the mean; so does a GPU's mask."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.ops.dropout import dropout, packed_mask, random_bits

KEY = jax.random.key(17, impl='threefry2x32')
dropped = jax.jit(dropout, static_argnums=2)


@pytest.mark.parametrize(
  'shape', [(), (1,), (7,), (5, 7), (3, 5, 7), (2, 3, 5, 7), (0, 3)]
)
@pytest.mark.parametrize('seed', [0, 2**31 + 11])
def test_the_bits_match_jax(shape, seed):
  key = jax.random.key(seed, impl='threefry2x32')
  bits = random_bits(key, shape)
  chex.assert_trees_all_equal(bits, jax.random.bits(key, shape))
  chex.assert_shape(bits, shape)
  assert bits.dtype == jnp.uint32


def test_eager_jit_vmap_and_pmap_agree_on_the_bits_and_dropped_values():
  keys, x = jax.random.split(KEY, 3), jax.random.normal(KEY, (3, 5, 7))

  def drop(key, x):
    return random_bits(key, x.shape), dropout(key, x, 0.3)

  bits, kept = (
    jnp.stack(item)
    for item in zip(*(drop(*given) for given in zip(keys, x, strict=True)), strict=True)
  )
  assert np.unique(bits).size == bits.size and 0.1 < np.mean(kept == 0.0) < 0.5
  for lifted in (jax.vmap(drop), jax.pmap(drop), jax.jit(jax.vmap(drop))):
    chex.assert_trees_all_equal(lifted(keys, x), (bits, kept))


@pytest.mark.parametrize('spec', [('rows',), (None, 'rows'), (None, None, 'rows')])
def test_sharding_does_not_change_the_dropped_values(spec):
  mesh = Mesh(np.array(jax.devices()[:4]), ('rows',))
  x = jax.random.normal(jax.random.key(1), (12, 4, 20))
  placed = jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
  assert len(placed.sharding.device_set) == 4
  chex.assert_trees_all_equal(
    jax.device_get(dropped(KEY, placed, 0.3)), jax.device_get(dropped(KEY, x, 0.3))
  )


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9])
def test_the_rate_is_the_share_that_is_dropped_and_the_mean_stays(rate):
  shape = (499, 509)
  out = np.asarray(dropped(KEY, jnp.ones(shape), rate), np.float64)
  deviation = np.sqrt(rate * (1 - rate) / out.size)
  assert abs(np.mean(out == 0.0) - rate) < 5 * deviation
  assert abs(np.mean(out) - 1.0) < 5 * deviation / (1 - rate)


@pytest.mark.parametrize('probability', [0.1, 0.5, 0.9])
def test_the_mask_of_a_gpu_is_true_with_its_probability_and_its_elements_are_independent(
  probability,
):
  shape = (499, 508)
  mask = np.asarray(packed_mask(KEY, shape, probability))
  assert mask.shape == shape and mask.dtype == bool
  # The mean of n independent centered products has a deviation of variance / √n.
  variance = probability * (1 - probability)
  assert abs(mask.mean() - probability) < 5 * np.sqrt(variance / mask.size)
  centered = mask - probability
  # Elements that share a hash, and elements that do not.
  for distance in (1, 2, 3, 4):
    products = centered[:, distance:] * centered[:, :-distance]
    assert abs(products.mean()) < 5 * variance / np.sqrt(products.size)
  others = np.asarray(packed_mask(jax.random.fold_in(KEY, 1), shape, probability))
  products = centered * (others - probability)
  assert abs(products.mean()) < 5 * variance / np.sqrt(products.size)


@pytest.mark.parametrize('shape', [(1,), (7,), (3, 8), (2, 3, 5), (0, 3)])
def test_the_mask_of_a_gpu_has_any_shape_and_a_row_does_not_depend_on_the_others(shape):
  mask = packed_mask(KEY, shape, 0.5)
  chex.assert_shape(mask, shape)
  chex.assert_trees_all_equal(
    mask[:1], packed_mask(KEY, (1, *shape[1:]), 0.5)[: shape[0]]
  )
  assert packed_mask(KEY, shape, 1 - 2.0**-18).all()


def test_a_single_number_is_dropped_or_kept():
  assert packed_mask(KEY, (), 1.0) and not packed_mask(KEY, (), 0.0)
  for index in range(8):
    key = jax.random.fold_in(KEY, index)
    x = jnp.float32(1.0)
    chex.assert_trees_all_equal(dropped(key, x, 0.5), dropout(key, x, 0.5))


def test_eager_jit_vmap_pmap_and_sharding_agree_on_the_mask_of_a_gpu():
  keys = jax.random.split(KEY, 3)

  def run(key):
    return packed_mask(key, (5, 8), 0.5)

  wanted = jnp.stack([run(key) for key in keys])
  assert len({row.tobytes() for row in np.asarray(wanted)}) == 3
  for lifted in (jax.vmap(run), jax.pmap(run), jax.jit(jax.vmap(run))):
    chex.assert_trees_all_equal(lifted(keys), wanted)
  mesh = Mesh(np.array(jax.devices()[:4]), ('rows',))
  for spec in (PartitionSpec('rows'), PartitionSpec(None, 'rows')):
    sharded = jax.jit(
      lambda key: packed_mask(key, (4, 16), 0.5),
      out_shardings=NamedSharding(mesh, spec),
    )(KEY)
    chex.assert_trees_all_equal(sharded, packed_mask(KEY, (4, 16), 0.5))


def test_a_gpu_computes_a_hash_for_four_elements_and_other_processors_for_each():
  traced = jax.jit(dropout, static_argnums=2).trace(KEY, jnp.ones((5, 508)), 0.5)
  for platform, wanted in (('cuda', False), ('cpu', True), ('tpu', True)):
    program = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ('5x508xui32' in program) == wanted
    assert ('5x127xui32' in program) != wanted


def test_a_rate_of_zero_or_below_the_resolution_of_the_bits_drops_nothing():
  x = jax.random.normal(KEY, (5, 7))
  assert dropout(KEY, x, 0.0) is x
  for rate in (2.0**-34, 1e-12):
    chex.assert_trees_all_equal(dropout(KEY, x, rate), x)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float16'])
@pytest.mark.parametrize('rate', [0.1, 0.75])
def test_survivors_are_scaled_exactly_and_keep_their_type(dtype, rate):
  x = jax.random.normal(jax.random.key(2), (13, 17)).astype(dtype)
  out = dropout(KEY, x, rate)
  assert out.dtype == x.dtype
  kept = np.asarray(jax.random.bits(KEY, x.shape), np.float64) / 2**32 < 1 - rate
  assert kept.any() and not kept.all()
  scale = jnp.asarray(1 / (1 - rate), dtype)
  chex.assert_trees_all_equal(out, jnp.where(kept, x * scale, 0))
  gradient = jax.grad(lambda x: jnp.sum(dropout(KEY, x, rate)))(x)
  chex.assert_trees_all_equal(gradient, jnp.where(kept, scale, jnp.zeros((), dtype)))
