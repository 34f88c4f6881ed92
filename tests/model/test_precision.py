"""Activations are 16-bit if so configured, and all else is float32."""

import jax
import jax.numpy as jnp
import pytest

from tests.model.conftest import W, build
from tests.model.test_transformer import all_variants, variants
from transformer.model.attention import MultiHeadAttention
from transformer.model.config import ModelConfig
from transformer.model.dense import Dense
from transformer.model.layers import Embedding, FeedForward, Layer


@pytest.mark.long(but=('post',))
@variants
def test_activations_are_16_bit_and_all_else_is_float32(batch, variant):
  tiny = build(**variant, dtype='bfloat16')
  assert {leaf.dtype for leaf in jax.tree.leaves(tiny.params)} == {jnp.dtype('float32')}
  x, logits = tiny.forward(tiny.params, *batch)
  assert (x.dtype, logits.dtype) == (jnp.bfloat16, jnp.float32)
  state, _ = tiny.model.apply({'params': tiny.params}, *batch[:3], W, method='start')
  assert {leaf.dtype for leaf in jax.tree.leaves(state.caches)} == {
    jnp.dtype('bfloat16')
  }


@pytest.mark.long(but=('post', 'modern'))
@all_variants
def test_every_layer_has_16_bit_activations(batch, variant):
  tiny = build(**variant, dtype='bfloat16')
  kinds = (Embedding, MultiHeadAttention, Dense, FeedForward, Layer)

  def activations(params):
    return tiny.model.apply(
      {'params': params},
      *batch,
      mutable=['intermediates'],
      capture_intermediates=lambda module, method: (
        method == '__call__'
        and (isinstance(module, kinds) or 'Norm' in type(module).__name__)
      ),
    )[1]

  found = jax.tree.leaves(jax.eval_shape(activations, tiny.params))
  assert len(found) > 2 * 2 * 10
  assert {leaf.dtype for leaf in found} == {jnp.dtype('bfloat16')}


def test_a_feed_forward_bias_is_added_before_the_sum_is_rounded():
  # 1 + 2⁻⁹ would be rounded to 1 in bfloat16.
  params = {
    'inner': {'kernel': jnp.array([[-1.0]]), 'bias': jnp.array([1 + 2**-9])},
    'outer': {'kernel': jnp.array([[1.0]]), 'bias': jnp.array([2**-9])},
  }
  module = FeedForward(
    ModelConfig(model_dim=1, ff_dim=1, num_heads=1, dtype='bfloat16')
  )
  x = jnp.ones((1, 1), jnp.bfloat16)
  out = jax.jit(lambda params: module.apply({'params': params}, x, deterministic=True))(
    params
  )
  assert out.dtype == jnp.bfloat16
  assert out == 2**-8
