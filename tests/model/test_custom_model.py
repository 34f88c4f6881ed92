"""A model, and an attention, of a user's file, as docs/changing-the-model.md shows them."""

import dataclasses
import types

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.conftest import SIZES, N, build
from transformer.errors import UserError
from transformer.model.building import build_model
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer, init_params
from transformer.ops.search import grow_state, plain_arrays

VOCABULARY = types.SimpleNamespace(
  target=types.SimpleNamespace(size=N), source=types.SimpleNamespace(size=N)
)
TEMPERED = 'my_heads:TemperedTransformer'


def model_of(**changes):
  return build_model(ModelConfig(**SIZES | changes), VOCABULARY)


def random_params(model):
  def random(path, leaf):
    rng = np.random.default_rng([leaf.size, len(str(path))])
    return jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype)

  return jax.tree_util.tree_map_with_path(
    random, jax.eval_shape(lambda: init_params(model, 0))
  )


def cached_logits(model, params, batch, steps=5):
  """Returns the logits of the first steps of one hypothesis, [B, T, N], by a cache."""

  def apply(*given, method):
    return model.apply({'params': params}, *given, method=method)

  state, source = jax.jit(lambda *given: apply(*given, 1, method='start'))(*batch[:3])
  state, source = plain_arrays((grow_state(state, steps), source))
  step = jax.jit(lambda *given: apply(*given, method='step'))
  logits = []
  for index in range(steps):
    logits_BWN, state = step(
      batch[3][:, index : index + 1], jnp.int32(index), state, source
    )
    logits.append(logits_BWN[:, 0])
  return jnp.stack(logits, axis=1)


def forced_logits(model, params, batch):
  x_BTD, output_ND = jax.jit(lambda params: model.apply({'params': params}, *batch))(
    params
  )
  return jnp.einsum('BTD,ND->BTN', x_BTD, output_ND)


@pytest.fixture
def one_pair_a_row(batch):
  """The batch with a single sentence pair in each row."""
  source, _, __, inputs, *_ = batch
  places = [
    np.broadcast_to(np.arange(side.shape[1]), side.shape) for side in (source, inputs)
  ]
  return (
    np.maximum(source, 4),
    np.ones_like(source),
    places[0],
    np.maximum(inputs, 4),
    np.ones_like(inputs),
    places[1],
  )


@pytest.mark.parametrize(
  'changes',
  [
    {'module': TEMPERED},
    {'module': (TEMPERED, {'first': 2.0})},
    {'attention': 'my_attentions:cosine'},
  ],
)
def test_a_search_computes_what_training_computes(doc_plugins, one_pair_a_row, changes):
  model = model_of(**changes)
  params = random_params(model)
  forced = forced_logits(model, params, one_pair_a_row)
  plain = forced_logits(model_of(), random_params(model_of()), one_pair_a_row)
  assert np.max(np.abs(forced - plain)) > 0.01
  chex.assert_trees_all_close(
    cached_logits(model, params, one_pair_a_row), forced[:, :5], rtol=1e-3, atol=1e-4
  )


def test_the_settings_of_a_model_reach_its_parameters(doc_plugins):
  for module, first in ((TEMPERED, 1.0), ((TEMPERED, {'first': 2.0}), 2.0)):
    params = init_params(model_of(module=module), 0)
    for layer in ('encoder_0', 'decoder_1'):
      temperature = params[layer]['self_attention']['temperature']
      assert np.all(temperature == first)
  # They are a part of the model, so that no program is used for another model.
  configs = [ModelConfig(module=(TEMPERED, {'first': first})) for first in (1.0, 2.0)]
  assert configs[0] != configs[1] and repr(configs[0]) != repr(configs[1])
  assert len(set(configs)) == 2


def test_attention_as_a_function_computes_what_the_default_does(batch, monkeypatch):
  tiny = build(norm_position='pre')
  own = Transformer(
    dataclasses.replace(
      tiny.model.config, attention='transformer.ops.attention:dot_product_attention'
    ),
    N,
  )
  chex.assert_trees_all_equal(
    forced_logits(own, tiny.params, batch),
    forced_logits(tiny.model, tiny.params, batch),
  )


class WithoutStep(nn.Module):
  config: ModelConfig
  vocabulary_size: int
  source_vocabulary_size: int

  def start(self):
    pass


def none(*_):
  return None


@pytest.mark.parametrize(
  ('changes', 'fact'),
  [
    ({'module': 'Transformer'}, 'model.module must be MODULE:NAME, or a tuple of it'),
    (
      {'module': ('a:B', {'x': [1]})},
      'must be numbers, strings, booleans or None',
    ),
    ({'module': 'no_module:A'}, 'the model no_module:A cannot be imported'),
    ({'module': f'{__name__}:none'}, 'must be a class of Flax modules; got None'),
    ({'module': f'{__name__}:WithoutStep'}, 'lacks step; '),
    (
      {'module': (f'{__name__}:WithoutStep', {'x': 1})},
      "{'x': 1}) cannot be built: TypeError",
    ),
    (
      {'attention': 'flash'},
      'model.attention must be reference, cudnn, or MODULE:FUNCTION; got ',
    ),
    ({'attention': 'no_module:f'}, 'the attention no_module:f cannot be imported'),
  ],
)
def test_user_error_is_a_one_line_message_that_names_the_part(changes, fact):
  with pytest.raises(UserError) as caught:
    model_of(**changes)
  assert fact in str(caught.value), caught.value
  assert '\n' not in str(caught.value)


def test_asking_for_weights_that_an_attention_lacks_raises_an_error(batch, doc_plugins):
  model = model_of(attention='my_attentions:cosine')
  with pytest.raises(
    UserError, match='my_attentions:cosine returns no attention weights'
  ):
    model.apply({'params': random_params(model)}, *batch, mutable=['attention'])
