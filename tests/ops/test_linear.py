"""The product and its gradients match a plain einsum."""

import chex
import jax
import jax.numpy as jnp
import pytest

from transformer.ops.linear import linear

B, T = 3, 5
SIZES = [(7, 11), (11, 7), (7, 7), (1, 7)]


def arrays(inputs, outputs, dtype=jnp.float32, leading=(B, T)):
  keys = jax.random.split(jax.random.key(inputs * 31 + outputs), 3)
  return (
    jax.random.normal(keys[0], (*leading, inputs), dtype),
    jax.random.normal(keys[1], (inputs, outputs), dtype),
    jax.random.normal(keys[2], (*leading, outputs), dtype),
  )


def plain(x, kernel_IO):
  return jnp.einsum('...I,IO->...O', x, kernel_IO)


def with_gradients(function):
  def run(x, kernel_IO, cotangent):
    y, back = jax.vjp(function, x, kernel_IO)
    return y, back(cotangent)

  return run


@pytest.mark.parametrize(('inputs', 'outputs'), SIZES)
@pytest.mark.parametrize('leading', [(), (T,), (B, T), (2, B, T)])
def test_the_gradients_match_an_einsum(inputs, outputs, leading):
  given = arrays(inputs, outputs, leading=leading)
  result = jax.jit(with_gradients(linear))(*given)
  chex.assert_trees_all_close(
    result, with_gradients(plain)(*given), rtol=1e-5, atol=1e-6
  )
  chex.assert_shape(result[1][1], (inputs, outputs))


@pytest.mark.parametrize(('inputs', 'outputs'), SIZES[:2])
def test_eager_jit_vmap_and_pmap_agree(inputs, outputs):
  many = arrays(inputs, outputs, leading=(2, B))
  kernels = jnp.stack([many[1], -many[1]])
  run = with_gradients(linear)
  wanted = [run(many[0][i], kernels[i], many[2][i]) for i in range(2)]
  wanted = jax.tree.map(lambda *leaves: jnp.stack(leaves), *wanted)
  for lift in (lambda f: jax.vmap(jax.jit(f)), jax.pmap):
    chex.assert_trees_all_close(
      lift(run)(many[0], kernels, many[2]), wanted, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize('axes', [1, 2])
def test_several_axes_of_x_are_multiplied_by_the_first_ones_of_the_kernel(axes):
  keys = jax.random.split(jax.random.key(axes), 3)
  x = jax.random.normal(keys[0], (B, T, 2, 7)[: 2 + axes])
  kernel = jax.random.normal(keys[1], (*x.shape[2:], 3, 11))
  cotangent = jax.random.normal(keys[2], (B, T, 3, 11))
  wanted = with_gradients(lambda x, kernel: jnp.tensordot(x, kernel, axes))
  result = with_gradients(lambda x, kernel: linear(x, kernel, axes))
  chex.assert_trees_all_close(
    jax.jit(result)(x, kernel, cotangent),
    wanted(x, kernel, cotangent),
    rtol=1e-5,
    atol=1e-6,
  )


def test_the_product_has_the_requested_type():
  x, kernel, cotangent = arrays(7, 11, jnp.bfloat16)

  def rounded(x, kernel):
    return linear(x, kernel, 1, jnp.bfloat16)

  y, gradients = with_gradients(rounded)(x, kernel, cotangent)
  chex.assert_trees_all_equal(y, linear(x, kernel).astype(jnp.bfloat16))
  assert {leaf.dtype for leaf in (y, *gradients)} == {jnp.dtype('bfloat16')}


def test_sixteen_bit_factors_have_an_unrounded_product_and_sixteen_bit_gradients():
  for inputs, outputs in SIZES[:2]:
    x, kernel, cotangent = arrays(inputs, outputs, jnp.bfloat16)
    given = x, kernel, cotangent.astype(jnp.float32)
    y, gradients = jax.jit(with_gradients(linear))(*given)
    exact_y, exact = with_gradients(plain)(*(x.astype(jnp.float32) for x in given))
    # Products of 16-bit numbers are exact in float32; only their sum is rounded.
    chex.assert_trees_all_close(y, exact_y, rtol=1e-5, atol=1e-6)
    assert {leaf.dtype for leaf in gradients} == {jnp.dtype('bfloat16')}
    chex.assert_trees_all_close(
      jax.tree.map(lambda x: x.astype(jnp.float32), gradients),
      exact,
      rtol=0.05,
      atol=0.1,
    )
