"""Activations are 16-bit if so configured, and all else is float32."""

import jax
import jax.numpy as jnp
import pytest

from tests.model.conftest import W, build
from tests.model.test_transformer import all_variants, variants
from transformer.model.attention import MultiHeadAttention
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
  kinds = (Embedding, MultiHeadAttention, FeedForward, Layer)

  def activations(params):
    return tiny.model.apply(
      {'params': params},
      *batch,
      mutable=['intermediates'],
      capture_intermediates=lambda module, method: (
        method == '__call__'
        and (
          isinstance(module, kinds)
          or 'Dense' in type(module).__name__
          or 'Norm' in type(module).__name__
        )
      ),
    )[1]

  found = jax.tree.leaves(jax.eval_shape(activations, tiny.params))
  assert len(found) > 2 * 2 * 10
  assert {leaf.dtype for leaf in found} == {jnp.dtype('bfloat16')}
