"""The kit finds the error of a model, reports it in one sentence, and passes a correct model."""

import importlib

import pytest

from tests.testing import broken_models
from tests.testing.sizes import SIZES
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.testing.checks import CHECKS
from transformer.testing.model_under_test import (
  CheckFailed,
  ModelUnderTest,
  load,
  shrink,
)

CONFIG = ModelConfig(**SIZES | {'num_layers': 1})
# The model of docs/models.md, which is no Transformer.
SPEC = 'my_models:Gru'
pytestmark = pytest.mark.usefixtures('doc_plugins')


def long(*values):
  return pytest.param(*values, marks=pytest.mark.long)


@pytest.mark.parametrize(
  ('model', 'check', 'sentence'),
  [
    ('NotCausal', 'future_targets_change_nothing', 'which comes later'),
    ('Routed', 'future_targets_change_nothing', 'changes with later target tokens'),
    ('OneSegment', 'neighbors_change_nothing', 'the other pairs of a packed row'),
    ('NoPadding', 'neighbors_change_nothing', 'the tokens at padding'),
    ('BatchMean', 'neighbors_change_nothing', 'other rows of a batch'),
    (
      'RowPositions',
      'packing_changes_nothing',
      'between a packed row and a row with only this pair',
    ),
    ('LengthMean', 'packing_changes_nothing', 'the amount of padding'),
    ('Impure', 'eager_jit_and_vmap_agree', 'jax.jit changes outputs'),
    (
      'AlwaysDropping',
      'dropout_follows_deterministic_and_key',
      'no dropout key the model fails',
    ),
    (
      'NeverDropping',
      'dropout_follows_deterministic_and_key',
      'dropout keys change nothing',
    ),
    ('EmptyRows', 'empty_rows_have_finite_gradients', 'not finite'),
    ('Rounded', 'bfloat16_is_near_float32', 'log-probabilities differ from float32'),
    (
      'Late',
      'cached_decoding_equals_teacher_forcing',
      'probabilities of cached decoding steps differ',
    ),
    (
      'NotReordered',
      'cached_decoding_equals_teacher_forcing',
      'after hypotheses are reordered',
    ),
    (
      'NotReordered',
      'search_scores_equal_teacher_forcing',
      'would rank hypotheses wrongly',
    ),
    long('StatefulStep', 'beam_of_one_is_greedy', 'different translations'),
    long(
      'Stateful', 'resumed_training_equals_uninterrupted', 'with the same seed differ'
    ),
    long(
      'Stateful',
      'sharded_training_equals_one_device',
      'depend on the number of devices',
    ),
    ('BadSplits', 'sharded_training_equals_one_device', 'cannot be compiled'),
  ],
)
def test_a_broken_model_is_caught_by_its_check(model, check, sentence):
  with pytest.raises(CheckFailed, match=sentence) as caught:
    CHECKS[check](ModelUnderTest(getattr(broken_models, model), CONFIG))
  assert '\n' not in str(caught.value)


@pytest.fixture(scope='module')
def gru(doc_plugins):
  return ModelUnderTest(importlib.import_module('my_models').Gru, CONFIG)


@pytest.mark.parametrize(
  'check',
  [
    long(name)
    if name
    in ('sharded_training_equals_one_device', 'resumed_training_equals_uninterrupted')
    else name
    for name in CHECKS
  ],
)
def test_the_model_of_the_page_passes(gru, check):
  CHECKS[check](gru)


def test_a_model_of_a_config_has_small_sizes_its_heads_and_its_own_settings():
  config = ModelConfig(
    num_heads=4, key_dim=64, module=(SPEC, {'hidden': 5}), dtype='bfloat16'
  )
  found = shrink(config)
  assert (found.num_heads, found.module, found.dtype) == (4, config.module, 'float32')
  assert (
    found.model_dim % 4 == 0 and max(found.model_dim, found.ff_dim, found.key_dim) < 64
  )
  subject = load('{"num_layers": 6, "module": ["' + SPEC + '", {"hidden": 5}]}')
  assert (subject.model.hidden, subject.config.num_layers) == (5, 2)
  # Fewer positions than the default data.max_length, which the checks do not read.
  assert (
    load('{"positions": "learned", "max_positions": 90}').config.positions == 'learned'
  )


@pytest.mark.parametrize(
  ('text', 'fact'),
  [
    ('nowhere:Model', 'nowhere:Model cannot be imported'),
    ('{"num_layers": 0}', 'num_layers'),
    ('{', 'must be MODULE:CLASS'),
    ('tests.testing.sizes:dict', 'dict'),
  ],
)
def test_a_model_that_cannot_be_built_is_a_one_line_error(text, fact):
  with pytest.raises(UserError, match=fact):
    load(text)
