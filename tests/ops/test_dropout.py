"""Dropout uses JAX's random bits, with any sharding, and keeps the mean."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.ops.dropout import dropout, random_bits

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
