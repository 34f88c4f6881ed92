"""Sinusoidal positions, rotary positions and T5's buckets follow their papers."""

import itertools
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops.positions import (
  apply_rotary,
  relative_buckets,
  sinusoidal_encoding,
  sinusoidal_positions,
)

LENGTH, EVEN, ODD = 29, 14, 11


@pytest.mark.parametrize(
  'length, dim', [(LENGTH, EVEN), (LENGTH, ODD), (3, 1), (1, 2), (0, 5)]
)
def test_every_entry_is_the_published_formula(length, dim):
  table = sinusoidal_positions(length, dim)
  chex.assert_shape(table, (length, dim))
  assert table.dtype == np.float32
  for p, d in np.ndindex(length, dim):
    angle = p / 10_000 ** (2 * (d // 2) / dim)
    wanted = math.cos(angle) if d % 2 else math.sin(angle)
    assert table[p, d] == pytest.approx(wanted, abs=1e-7), (p, d)


def test_positions_may_be_fractions_of_any_shape_and_lie_far_away():
  positions = np.array([[0, 3, 1], [2, 7, 28]])
  table = sinusoidal_positions(LENGTH, ODD)
  chex.assert_trees_all_equal(sinusoidal_encoding(positions, ODD), table[positions])
  for position, d in itertools.product((2.5, 50_021), range(EVEN)):
    angle = position / 10_000 ** (2 * (d // 2) / EVEN)
    assert sinusoidal_encoding(position, EVEN)[d] == pytest.approx(
      math.cos(angle) if d % 2 else math.sin(angle), abs=1e-7
    ), (position, d)


T, H, K = 7, 3, 10


def heads(seed):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(2, T, H, K)), jnp.float32)


def test_rotary_positions_rotate_pairs_of_dims_by_the_published_angles():
  x, places = heads(0), jnp.asarray([[0, 1, 2, 3, 0, 1, 2], [5, 5, 40, 3, 1, 0, 2]])
  result = apply_rotary(x, places)
  for b, t, h, i in np.ndindex(2, T, H, K // 2):
    angle = float(places[b, t]) / 10_000 ** (2 * i / K)
    wanted = complex(x[b, t, h, 2 * i], x[b, t, h, 2 * i + 1]) * np.exp(1j * angle)
    assert complex(result[b, t, h, 2 * i], result[b, t, h, 2 * i + 1]) == pytest.approx(
      wanted, abs=1e-5
    )
  chex.assert_trees_all_equal(apply_rotary(x, jnp.zeros(T)), x)
  chex.assert_trees_all_close(jax.vmap(apply_rotary)(x, places), result, atol=1e-6)
  # bfloat16 cannot hold all positions beyond 256.
  short = x.astype(jnp.bfloat16)
  exact = apply_rotary(short.astype(jnp.float32), places + 257)
  chex.assert_trees_all_equal(
    apply_rotary(short, places + 257), exact.astype(jnp.bfloat16)
  )


def test_angles_are_not_rounded_where_products_are():
  # A TPU rounds the factors of a product to bfloat16 by default.
  program = jax.export.export(jax.jit(apply_rotary), platforms=['tpu'])(
    heads(0), jnp.arange(T)
  )
  products = re.findall('dot_general %.*', program.mlir_module())
  assert products and all('HIGHEST' in item for item in products)


def test_rotary_products_depend_only_on_distances():
  q, k, places = heads(1), heads(2), jnp.arange(T)

  def products(shift):
    return jnp.einsum(
      'BTHK,BSHK->BHTS',
      apply_rotary(q, places + shift),
      apply_rotary(k, places + shift),
    )

  chex.assert_trees_all_close(products(50), products(0), atol=1e-4)
  moved = jnp.einsum(
    'BTHK,BSHK->BHTS', apply_rotary(q, places + 1), apply_rotary(k, places)
  )
  assert np.max(np.abs(moved - products(0))) > 0.1


def published_bucket(distance, bidirectional):
  """Computes T5's bucket in plain Python, for 32 buckets and distances up to 128."""
  size, first = 32, 0
  if bidirectional:
    size = 16
    first = 16 if distance > 0 else 0
    away = abs(distance)
  else:
    away = max(-distance, 0)
  if away < size // 2:
    return first + away
  log = math.log(away / (size // 2)) / math.log(128 / (size // 2))
  return first + min(size // 2 + int(log * (size - size // 2) + 1e-6), size - 1)


@pytest.mark.parametrize('bidirectional', [True, False])
def test_distances_fall_into_t5s_buckets(bidirectional):
  distances = np.arange(-300, 301)
  result = relative_buckets(jnp.asarray(distances), bidirectional=bidirectional)
  assert result.dtype == jnp.int32
  np.testing.assert_array_equal(
    result, [published_bucket(int(item), bidirectional) for item in distances]
  )
  assert set(result.tolist()) == set(range(32)) - ({16} if bidirectional else set())
