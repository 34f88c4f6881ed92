"""Arithmetic is counted from the weights that a token meets."""

import jax
import jax.numpy as jnp
import pytest

from transformer.model.config import ModelConfig
from transformer.model.flops import peak_flops, train_flops
from transformer.model.transformer import Transformer

N = 37


@pytest.mark.parametrize('changed', [{}, {'norm': 'pre', 'num_layers': 3}, {'tie_output': False},
                                     {'activation': 'swiglu'}])
def test_every_weight_matrix_is_counted_for_the_tokens_that_meet_it(changed):
  config = ModelConfig(**{'num_layers': 2, 'model_dim': 13, 'ff_dim': 17, 'num_heads': 3,
                          'key_dim': 7, 'value_dim': 11} | changed)
  side = jnp.zeros((1, 2), jnp.int32)
  params = jax.eval_shape(Transformer(config, N).init, jax.random.key(0), *[side] * 6)['params']
  source = target = 0
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    names = [key.key for key in path]
    if names[-1] == 'kernel':
      from_source = names[0].startswith('encoder') or (
          names[1] == 'cross_attention' and names[2] in ('key', 'value'))
      source, target = source + leaf.size * from_source, target + leaf.size * (not from_source)
  # The output projection, tied or not; looking an embedding up multiplies nothing.
  assert train_flops(config, N) == (6 * source, 6 * (target + 13 * N))


def test_the_base_model_at_the_papers_vocabulary():
  source, target = train_flops(ModelConfig(), 37_000)
  assert source == 6 * (6 * (4 * 512 ** 2 + 2 * 512 * 2048) + 6 * 2 * 512 ** 2)
  assert target == 6 * (6 * (6 * 512 ** 2 + 2 * 512 * 2048) + 512 * 37_000)


def test_only_the_peaks_of_known_devices_are_known():
  assert peak_flops('NVIDIA H100 80GB HBM3') == 989e12
  assert peak_flops('cpu') is None
