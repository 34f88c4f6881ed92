"""The FLOPs of a token follow from the number of weights that it is multiplied with."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from tests.model.conftest import SIZES, N
from transformer.model.config import ModelConfig
from transformer.model.flops import train_flops_per_token, transformer_flops_per_token
from transformer.model.transformer import Transformer


def of_a_row(model, source_length, target_length):
  """Returns the FLOPs of a training step for a row of a batch."""
  of_source, of_target = train_flops_per_token(
    model, 1, (), source_length, target_length
  )
  return of_source * source_length + of_target * target_length


@pytest.mark.parametrize(
  'changed',
  [
    {},
    {'norm_position': 'pre', 'decoder_layers': 3},
    {'tie_output': False},
    {'activation': 'swiglu'},
    {'output_bias': True},
  ],
)
def test_every_weight_matrix_is_counted_for_the_tokens_that_it_multiplies(changed):
  config = ModelConfig(**SIZES | changed)
  side = jnp.zeros((1, 2), jnp.int32)
  params = jax.eval_shape(Transformer(config, N).init, jax.random.key(0), *[side] * 6)[
    'params'
  ]
  source = target = 0
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    names = [key.key for key in path]
    if names[-1] == 'kernel':
      from_source = names[0].startswith('encoder') or (
        names[1] == 'cross_attention' and names[2] in ('key', 'value')
      )
      source, target = (
        source + leaf.size * from_source,
        target + leaf.size * (not from_source),
      )
  # The output projection, tied or not; an embedding look-up has no FLOPs.
  assert transformer_flops_per_token(config, N) == (6 * source, 6 * (target + 13 * N))


@pytest.mark.long(but=('changed1',))
@pytest.mark.parametrize(
  'changed',
  [{}, {'num_layers': 3, 'decoder_layers': 1}, {'activation': 'swiglu', 'key_dim': 16}],
)
def test_a_training_step_has_the_flops_that_xla_counts(
  changed,
):
  config = ModelConfig(
    **{'num_layers': 2, 'model_dim': 64, 'ff_dim': 128, 'num_heads': 2, 'dropout': 0.0}
    | changed
  )
  rows, source_length, target_length, vocabulary = 2, 96, 64, 300
  model = Transformer(config, vocabulary)
  source, target = (
    jnp.zeros((rows, length), jnp.int32) for length in (source_length, target_length)
  )
  batch = (source, source + 1, source, target, target + 1, target)
  params = jax.eval_shape(model.init, jax.random.key(0), *batch)['params']

  def loss(params):
    x_BTD, output_ND = model.apply({'params': params}, *batch)
    return jnp.sum(jnp.sin(x_BTD @ output_ND.T))

  counted = jax.jit(jax.grad(loss)).lower(params).compile().cost_analysis()['flops']
  formula = of_a_row(model, source_length, target_length) * rows
  # XLA also counts the norms and the softmax.
  assert 0.95 * formula < counted < 1.3 * formula
  without_attention = rows * sum(
    flops * length
    for flops, length in zip(
      transformer_flops_per_token(config, vocabulary),
      (source_length, target_length),
      strict=True,
    )
  )
  assert counted - formula < 0.8 * (formula - without_attention)


def test_attention_has_a_product_for_each_query_and_key_of_every_layer():
  config = ModelConfig(
    num_layers=3, decoder_layers=5, model_dim=13, num_heads=2, key_dim=7, value_dim=11
  )
  source, target = 17, 19
  of_source, of_target = transformer_flops_per_token(config, N)
  products = 3 * source * source + 5 * target * target + 5 * target * source
  assert of_a_row(Transformer(config, N), source, target) == pytest.approx(
    of_source * source + of_target * target + 6 * products * 2 * (7 + 11)
  )


def test_another_model_adds_a_forward_pass_a_third_of_a_training_step():
  model = Transformer(ModelConfig(num_layers=1, model_dim=8, ff_dim=16, num_heads=2), N)
  other = Transformer(ModelConfig(), N)
  assert train_flops_per_token(model, 2, [other, other], 5, 7) == pytest.approx(
    [
      2 * own + 2 / 3 * more
      for own, more in zip(model.flops(5, 7), other.flops(5, 7), strict=True)
    ]
  )


def test_the_flops_of_a_model_that_does_not_count_them_are_not_known():
  model = Transformer(ModelConfig(), N)
  assert train_flops_per_token(model) and train_flops_per_token(nn.Dense(3)) is None
  assert train_flops_per_token(model, extra_models=[nn.Dense(3)]) is None
