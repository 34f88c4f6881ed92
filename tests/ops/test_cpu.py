"""Log-probabilities are those of JAX; other tests have the products and the random bits."""

import chex
import jax
import jax.numpy as jnp

from transformer.ops.cpu import log_softmax


def test_log_probabilities_are_those_of_jax_however_large_the_logits_are():
  logits = 30.0 * jax.random.normal(jax.random.key(0), (3, 5, 11))
  logits += jnp.asarray([0.0, 1e4, -1e4])[:, None, None]
  actual = jax.jit(log_softmax)(logits)
  chex.assert_trees_all_close(actual, jax.nn.log_softmax(logits), rtol=1e-6, atol=1e-6)
  chex.assert_trees_all_close(jnp.sum(jnp.exp(actual), axis=-1), jnp.ones((3, 5)), rtol=1e-5)
