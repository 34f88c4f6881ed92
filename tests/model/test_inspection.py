"""The outputs of a layer match a model that ends there; embeddings have their gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import D, N, S, T, build, pack, pair
from tests.model.formulas import exact, layer_norm
from transformer.data.batch import Batch
from transformer.model.inspection import (
  embeddings,
  layer_logits,
  layer_outputs,
  override_embeddings,
)
from transformer.model.layers import Embedding
from transformer.model.transformer import Transformer
from transformer.ops.positions import sinusoidal_positions
from transformer.training.objective import cross_entropy, model_inputs

FORMS = [
  {'norm_position': 'post'},
  {
    'norm_position': 'pre',
    'remat': True,
    'share_embeddings': False,
    'output_bias': True,
  },
]
forms = pytest.mark.parametrize('changes', FORMS, ids=['post', 'pre'])


class Doubled(Embedding):
  """An embedding that calls its base class."""

  def __call__(self, tokens_BT, positions_BTD, *, deterministic):
    return 2.0 * super().__call__(tokens_BT, positions_BTD, deterministic=deterministic)


class DoubledTransformer(Transformer):
  def make_embedding(self, vocabulary_size):
    return Doubled(self.config, vocabulary_size)


@forms
@pytest.mark.parametrize('side, inputs', [('encoder', 3), ('decoder', 6)])
def test_a_layer_has_the_output_of_a_model_that_ends_there(
  batch, changes, side, inputs
):
  tiny = build(**changes)
  arrays = batch[:inputs]
  found = layer_outputs(tiny.model, tiny.params, *arrays, layers=True)
  assert list(found) == ['embedding', f'{side}_0', f'{side}_1']
  assert {array.shape for array in found.values()} == {
    (2, S if side == 'encoder' else T, D)
  }
  norms = exact(tiny.params.get(f'{side}_norm'))
  is_token = arrays[-2] > 0
  setting = 'num_layers' if side == 'encoder' else 'decoder_layers'
  for depth in (1, 2):
    config = dataclasses.replace(tiny.model.config, **{setting: depth})
    final = layer_outputs(Transformer(config, N), tiny.params, *arrays, layers=False)
    wanted = exact(found[f'{side}_{depth - 1}'])
    if norms:
      wanted = layer_norm(wanted, norms)
    np.testing.assert_allclose(final[is_token], wanted[is_token], rtol=1e-4, atol=1e-4)


@forms
def test_the_embedding_of_a_token_is_its_scaled_row_plus_its_position(batch, changes):
  tiny = build(**changes)
  found = embeddings(tiny.model, tiny.params, *batch)
  positions = sinusoidal_positions(max(S, T), D)
  source = 'target' if tiny.model.config.share_embeddings else 'source'
  for side, name, tokens, places in (
    (found.source, source, batch[0], batch[2]),
    (found.target, 'target', batch[3], batch[5]),
  ):
    table = tiny.params[f'{name}_embedding']['table']
    np.testing.assert_allclose(
      side, D**0.5 * table[tokens] + positions[places], rtol=1e-5, atol=1e-5
    )


@forms
def test_the_logits_of_the_last_layer_are_the_models(batch, changes):
  tiny = build(**changes)
  _, wanted = tiny.forward(tiny.params, *batch)
  *_, last = layer_outputs(tiny.model, tiny.params, *batch, layers=True).values()
  found = layer_logits(tiny.model, tiny.params, last)
  is_token = batch[4][..., None] > 0
  np.testing.assert_allclose(found * is_token, wanted * is_token, rtol=1e-4, atol=1e-3)


def test_layers_are_in_order_also_beyond_ten(batch):
  config = dataclasses.replace(build().model.config, num_layers=11)
  model = Transformer(config, N)
  variables = jax.eval_shape(model.init, jax.random.key(0), *batch)
  found = layer_outputs.eval_shape(model, variables['params'], *batch[:3], layers=True)
  assert list(found)[-3:] == ['encoder_8', 'encoder_9', 'encoder_10']


@pytest.mark.parametrize('share', [True, False])
@pytest.mark.parametrize('model_class', [Transformer, DoubledTransformer])
def test_gradients_of_a_tokens_embeddings_add_up_to_its_row_in_the_table(
  model_class, share
):
  changes = {'share_embeddings': share, 'tie_output': False, 'num_layers': 1}
  tiny = build(**changes)
  model = model_class(tiny.model.config, N)
  scale = D**0.5 * (2.0 if model_class is DoubledTransformer else 1.0)
  arrays = pack([[pair(5, 7, 0), pair(4, 6, 1)], [pair(7, 5, 2)]], 17, 17)
  batch = Batch(*arrays[:3], np.roll(arrays[3], -1, axis=1), *arrays[4:])
  inputs = model_inputs(batch)

  def loss(params, given=None):
    if given is None:
      return cross_entropy(0.1).loss(model, params, batch)['loss']
    with override_embeddings(params, given, 'float32'):
      return cross_entropy(0.1).loss(model, params, batch)['loss']

  given = embeddings(model, tiny.params, *inputs)
  plain, slopes_of = jax.jit(jax.value_and_grad(loss))(tiny.params)
  value, gradient = jax.jit(jax.value_and_grad(loss, argnums=1))(tiny.params, given)
  assert float(value) == pytest.approx(float(plain), rel=1e-5)
  sums = {'source': np.zeros((N, D)), 'target': np.zeros((N, D))}
  for side, tokens, segments in (
    ('source', inputs[0], inputs[1]),
    ('target', inputs[3], inputs[4]),
  ):
    slopes = np.asarray(getattr(gradient, side))
    assert not slopes[segments == 0].any()
    assert np.abs(slopes[segments > 0]).max(-1).min() > 0
    np.add.at(sums['target' if share else side], tokens, scale * slopes)
  names = ['target'] if share else ['source', 'target']
  for name in names:
    np.testing.assert_allclose(
      slopes_of[f'{name}_embedding']['table'], sums[name], rtol=1e-3, atol=1e-4
    )


def test_other_embeddings_are_read_under_jit_and_only_in_their_context(batch):
  tiny = build()
  found = embeddings(tiny.model, tiny.params, *batch)
  other = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), found)

  @jax.jit
  def run(given):
    with override_embeddings(tiny.params, given, 'float32'):
      return tiny.model.apply({'params': tiny.params}, *batch)[0]

  plain, _ = tiny.forward(tiny.params, *batch)
  np.testing.assert_allclose(run(found), plain, rtol=1e-4, atol=1e-4)
  assert np.abs(run(other) - plain).max() > 0.1
