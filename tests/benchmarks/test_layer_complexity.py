"""Counts for each kind of layer agree with table 1 of the paper; times are not measured."""

import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import table1_layers
from benchmarks.table1_layers import DILATED, KERNEL, LAYERS, NEIGHBORHOOD

ROOT = pathlib.Path(__file__).parents[2]
ATTENTION, PROJECTED, RECURRENT, CONVOLUTION, SEPARABLE, RESTRICTED = LAYERS
EACH = pytest.mark.parametrize(
  'layer', [*LAYERS, DILATED], ids=lambda layer: layer.name
)


def products(layer, n, d):
  """Returns the FLOPs of a layer's matrix products, counted by hand: two for a multiply-add."""
  return {
    ATTENTION: 4 * n * n * d,
    PROJECTED: 4 * n * n * d + 8 * n * d * d,
    RECURRENT: 4 * n * d * d,
    # The first k − 1 positions have less than k inputs.
    CONVOLUTION: 2 * (KERNEL * n - KERNEL * (KERNEL - 1) // 2) * d * d,
    SEPARABLE: 2 * (KERNEL * n - KERNEL * (KERNEL - 1) // 2) * d + 2 * n * d * d,
    RESTRICTED: 4 * NEIGHBORHOOD * n * d,
  }[layer]


@pytest.mark.parametrize('layer', LAYERS, ids=lambda layer: layer.name)
@pytest.mark.parametrize(('n', 'd'), [(48, 64), (64, 32), (520, 16)])
def test_flops_are_little_more_than_the_flops_of_the_products(layer, n, d):
  counted, by_hand = table1_layers.flops(layer, n, d), products(layer, n, d)
  heads = table1_layers.HEADS if layer is PROJECTED else 1
  # At most ten for each attention weight, and for each number of the input and output.
  elsewhere = 10 * heads * n * max(n, NEIGHBORHOOD) + 10 * n * d
  assert by_hand <= counted <= by_hand + elsewhere


@EACH
def test_sequential_operations_match_table_1(layer):
  counted = [table1_layers.sequential_operations(layer, n, 16) for n in (5, 16, 33)]
  assert counted == (
    [5, 16, 33]
    if layer is RECURRENT
    else [{ATTENTION: 2, PROJECTED: 4, RESTRICTED: 2, SEPARABLE: 2}.get(layer, 1)] * 3
  )


@pytest.mark.long
@EACH
@pytest.mark.parametrize('n', [2, 5, 17, 40])
def test_path_lengths_follow_from_the_reach_of_an_operation(layer, n):
  wanted = {
    ATTENTION: 1,
    PROJECTED: 1,
    RECURRENT: n,
    CONVOLUTION: -(-(n - 1) // (KERNEL - 1)),
    SEPARABLE: -(-(n - 1) // (KERNEL - 1)),
    RESTRICTED: -(-(n - 1) // (NEIGHBORHOOD // 2)),
    DILATED: next(depth for depth in range(9) if KERNEL**depth >= n),
  }[layer]
  assert table1_layers.path_length(layer, n) == wanted


@pytest.mark.parametrize(
  'layer', [CONVOLUTION, SEPARABLE, DILATED, RESTRICTED], ids=lambda layer: layer.name
)
def test_a_stack_of_that_depth_connects_all_positions_and_a_shallower_one_does_not(
  layer,
):
  n = 35
  weights, x_TD = table1_layers.inputs(layer, n, 2)

  def stack(x_TD, depth):
    for number in range(depth):
      x_TD = layer.advance(weights, x_TD, x_TD, layer.dilation**number)
    return x_TD.sum(axis=-1)

  depth = table1_layers.path_length(layer, n)
  for deep, all_connected in ((depth, True), (depth - 1, False)):
    jacobian_TSD = jax.jit(jax.jacrev(stack), static_argnums=1)(x_TD, deep)
    reached_TS = np.any(np.asarray(jacobian_TSD) != 0, axis=-1)
    assert reached_TS[np.tril_indices(n)].all() == all_connected


def test_a_recurrent_layer_equals_its_loop():
  weights, x_TD = table1_layers.inputs(RECURRENT, 11, 5)
  h_TD = jnp.zeros_like(x_TD)
  for _ in range(11):
    h_TD = RECURRENT.advance(weights, h_TD, x_TD, 1)
  np.testing.assert_allclose(h_TD, RECURRENT.apply(weights, x_TD), rtol=1e-4, atol=1e-5)


def test_restricted_attention_is_attention_with_all_but_neighbors_masked():
  from transformer.ops.attention import dot_product_attention

  n = 2 * NEIGHBORHOOD
  _, x_TD = table1_layers.inputs(RESTRICTED, n, 5)
  near_TS = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]) <= NEIGHBORHOOD // 2
  x_THD = x_TD[:, None, :]
  wanted_THD = dot_product_attention(x_THD, x_THD, x_THD, jnp.asarray(near_TS))
  np.testing.assert_allclose(
    RESTRICTED.apply((), x_TD), wanted_THD[:, 0, :], rtol=1e-4, atol=1e-5
  )


def test_a_separable_convolution_is_one_whose_kernel_is_a_product():
  weights, x_TD = table1_layers.inputs(SEPARABLE, 11, 5)
  kernel_SDD = weights.channels_S1D[:, 0, :, None] * weights.matrix_DD[None]
  np.testing.assert_allclose(
    SEPARABLE.apply(weights, x_TD),
    table1_layers.convolution(kernel_SDD, x_TD),
    rtol=1e-4,
    atol=1e-5,
  )


def script(*flags):
  return subprocess.run(
    [sys.executable, 'benchmarks/layer_complexity.py', *flags],
    cwd=ROOT,
    text=True,
    capture_output=True,
  )


@pytest.mark.long
def test_the_script_prints_the_papers_formulas_next_to_the_counts(tmp_path):
  done = script(
    '--turns=0',
    '--lengths=32,64,128',
    '--widths=16,32',
    '--path_lengths=4,8,28',
    '--fit_from_length=16',
    '--fit_from_width=16',
    f'--output={tmp_path}/plot.svg',
  )
  assert done.returncode == 0, done.stderr
  rows = {
    cells[0]: cells[1:]
    for cells in (re.split(r' *\| *', line)[1:-1] for line in done.stdout.splitlines())
    if len(cells) == 7
  }
  assert len(rows) == 8
  for name, formula, by_n, by_d in (
    ('self-attention', 'O(n²·d)', 2, 1),
    ('recurrent', 'O(n·d²)', 1, 2),
    ('convolution', 'O(k·n·d²)', 1, 2),
    ('restricted self-attention', 'O(r·n·d)', 1, 1),
  ):
    found = rows[name]
    assert found[0] == formula
    assert float(found[1].split()[0]) == pytest.approx(by_n, abs=0.1)
    assert float(found[3].split()[0]) == pytest.approx(by_d, abs=0.25)
    assert found[2] == found[4] == ''
  assert '| recurrent | O(n) | 4, 8, 28 | O(n) | 4, 8, 28 |' in done.stdout
  assert '| convolution | O(1) | 1 | O(n/k) | 2, 4, 14 |' in done.stdout
  assert '| convolution, dilated | O(1) | 1 | O(log_k n) | 2, 2, 4 |' in done.stdout
  assert (tmp_path / 'plot.svg').read_text().count('longest path') == 1


@pytest.mark.parametrize(
  ('flag', 'fact'),
  [
    ('--lengths=', '--lengths= is empty'),
    ('--length=0', '--length must be'),
    ('--output=plot.xyz', '--output must end in'),
  ],
)
def test_user_error_is_a_one_line_message(flag, fact):
  done = script(flag)
  assert done.returncode == 1 and done.stderr.startswith(f'error: {fact}'), done.stderr
  assert done.stderr.count('\n') == 1
