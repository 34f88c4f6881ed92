"""Sinusoidal encodings are section 3.5's, entry by entry."""

import math

import chex
import numpy as np
import pytest

from transformer.ops.positions import sinusoidal_positions

LENGTH, EVEN, ODD = 29, 14, 11


@pytest.mark.parametrize('length, dim', [(LENGTH, EVEN), (LENGTH, ODD), (3, 1), (1, 2), (0, 5)])
def test_every_entry_is_the_published_formula(length, dim):
  table = sinusoidal_positions(length, dim)
  chex.assert_shape(table, (length, dim))
  assert table.dtype == np.float32
  for p, d in np.ndindex(length, dim):
    angle = p / 10_000 ** (2 * (d // 2) / dim)
    wanted = math.cos(angle) if d % 2 else math.sin(angle)
    assert table[p, d] == pytest.approx(wanted, abs=1e-7), (p, d)


def test_far_positions_are_as_exact_as_near_ones():
  far = 50_021
  table = sinusoidal_positions(far + 1, EVEN)
  for d in range(EVEN):
    angle = far / 10_000 ** (2 * (d // 2) / EVEN)
    wanted = math.cos(angle) if d % 2 else math.sin(angle)
    assert table[far, d] == pytest.approx(wanted, abs=1e-7), d


@pytest.mark.parametrize('shift', [1, 5, 13])
@pytest.mark.parametrize('dim', [EVEN, ODD])
def test_a_shift_is_one_linear_map_the_same_for_all_positions(shift, dim):
  table = sinusoidal_positions(LENGTH, dim).astype(np.float64)
  paired = dim - dim % 2
  rotation = np.zeros((paired, paired))
  for d in range(0, paired, 2):
    angle = shift / 10_000 ** (d / dim)
    rotation[d:d + 2, d:d + 2] = [[math.cos(angle), math.sin(angle)],
                                  [-math.sin(angle), math.cos(angle)]]
  chex.assert_trees_all_close(table[shift:, :paired], table[:-shift, :paired] @ rotation.T,
                              atol=5e-7)


def test_every_position_has_the_same_length_and_no_two_are_equal():
  table = sinusoidal_positions(LENGTH, EVEN)
  chex.assert_trees_all_close(np.sum(table ** 2, axis=1), np.full(LENGTH, EVEN / 2, np.float32),
                              rtol=1e-6)
  assert len(np.unique(table, axis=0)) == LENGTH


@pytest.mark.parametrize('dim', [EVEN, ODD])
def test_a_longer_table_begins_with_the_shorter_one(dim):
  chex.assert_trees_all_equal(sinusoidal_positions(LENGTH, dim)[:13],
                              sinusoidal_positions(13, dim))
