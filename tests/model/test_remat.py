"""Rematerialized layers compute the same training steps in less memory."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.tiny_training import VOCABULARY, make_batch
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.training.objective import cross_entropy


def twins(**shape):
  """The same Transformer without and with `remat`."""
  config = ModelConfig(num_heads=2, dropout=0.2, **shape)
  return [
    Transformer(dataclasses.replace(config, remat=remat), VOCABULARY)
    for remat in (False, True)
  ]


def test_the_gradient_of_an_encoder_is_the_same_with_dropout():
  batch, found = make_batch(0), []
  plain, recomputing = twins(num_layers=1, model_dim=10, ff_dim=14)
  params = jax.jit(lambda: init_params(plain, 3))()
  for model in (plain, recomputing):

    def total(params, model=model):
      x_BSD = model.apply(
        {'params': params},
        *batch[:3],
        method='encode',
        deterministic=False,
        rngs={'dropout': jax.random.key(5)},
      )
      return jnp.sum(jnp.sin(x_BSD))

    found.append(jax.jit(jax.value_and_grad(total))(params))
  chex.assert_trees_all_close(*found, atol=1e-5, rtol=1e-5)


@pytest.mark.long
@pytest.mark.skipif(
  jax.__version_info__ < (0, 12),
  reason='XLA for the CPU merged both forward passes before',
)
def test_a_deep_model_needs_less_than_half_the_memory():
  batch = make_batch(0, rows=8)
  sizes = []
  for model in twins(num_layers=4, model_dim=16, ff_dim=64, norm_position='pre'):

    def loss(params, key, model=model):
      return cross_entropy(0.1).loss(model, params, batch, key)['loss']

    shapes = jax.eval_shape(lambda model=model: init_params(model, 3))
    program = jax.jit(jax.grad(loss)).lower(shapes, jax.random.key(1)).compile()
    sizes.append(program.memory_analysis().temp_size_in_bytes)
  kept, recomputed = sizes
  assert recomputed < kept / 2
