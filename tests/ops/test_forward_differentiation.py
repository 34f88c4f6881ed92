"""Functions with custom gradients support forward differentiation, as `ops` documents."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops.attention import dot_product_attention
from transformer.ops.linear import linear
from transformer.ops.losses import smoothed_cross_entropy

T, W, D = 5, 2, 7


def normal(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def attend_in_16_bits(x_TD):
  x_THK = x_TD.astype(jnp.bfloat16)[:, None]
  return dot_product_attention(x_THK, x_THK, x_THK).astype(jnp.float32)


def attend_in_32_bits(x_TD):
  return dot_product_attention(*[x_TD[:, None]] * 3)


def plain_loss(x_TD):
  log_probs = jax.nn.log_softmax(x_TD @ normal(D, D).T)
  return -jnp.sum(jnp.diag(log_probs[:, :T]))


# A function with a custom gradient, and an equal one without.
DIFFERENTIATED = {
  'linear': (
    lambda x: jnp.sin(linear(x, normal(D, W))),
    lambda x: jnp.sin(x @ normal(D, W)),
  ),
  'attention of 16 bits': (attend_in_16_bits, attend_in_32_bits),
  'loss': (
    lambda x: smoothed_cross_entropy(
      x[None], normal(D, D), jnp.arange(T)[None], jnp.ones((1, T))
    )['loss'],
    plain_loss,
  ),
}


@pytest.mark.parametrize('name', DIFFERENTIATED)
def test_forward_differentiation_works_as_the_package_says(name):
  function, plain = (
    lambda x, call=call: jnp.sum(call(x) ** 2) for call in DIFFERENTIATED[name]
  )
  x, v = normal(T, D), normal(T, D, seed=1)
  near = {'rtol': 0.1, 'atol': 0.1} if '16' in name else {'rtol': 1e-4, 'atol': 1e-4}

  @jax.jit
  def products(x, v):
    y, back = jax.vjp(function, x)
    return (
      jax.jvp(jax.grad(function), (x,), (v,))[1],
      jax.linearize(jax.grad(function), x)[1](v),
      jax.linear_transpose(back, y)((v,))[0],
    )

  @jax.jit
  def wanted(x, v):
    return jax.jvp(jax.grad(plain), (x,), (v,))[1], jax.jvp(plain, (x,), (v,))[1]

  hessian, slope = wanted(x, v)
  chex.assert_trees_all_close(products(x, v), (hessian, hessian, slope), **near)
