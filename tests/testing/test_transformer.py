"""The Transformer keeps what every model must keep, in all of its variants."""

import functools

import pytest

from tests.testing.sizes import SIZES
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.testing.checks import CHECKS
from transformer.testing.model_under_test import ModelUnderTest

ROTARY = {'norm_position': 'pre', 'positions': 'rotary', 'key_dim': 8}
VARIANTS = {
  'post': {'norm_position': 'post'},
  'learned': {'norm_position': 'pre', 'positions': 'learned'},
  'modern': {
    **ROTARY,
    'rms_norm': True,
    'activation': 'swiglu',
    'query_key_norm': True,
  },
  'relative': {'positions': 'relative', 'activation': 'gelu'},
  'marian': {'activation': 'silu', 'attention_bias': 'all', 'output_bias': True},
  'untied': {'share_embeddings': False, 'tie_output': False, 'decoder_layers': 1},
  'remat': {'remat': True},
}
# Some different checks; the others run with --all.
TRAINED = (
  'resumed_training_equals_uninterrupted',
  'sharded_training_equals_one_device',
)
QUICK = {
  *(f'post-{check}' for check in CHECKS if check not in TRAINED),
  'modern-neighbors_change_nothing',
  'relative-future_targets_change_nothing',
  'modern-cached_decoding_equals_teacher_forcing',
}


@functools.cache
def model_under_test_of(variant):
  return ModelUnderTest(Transformer, ModelConfig(**SIZES | VARIANTS[variant]))


@pytest.mark.long(but=QUICK)
@pytest.mark.parametrize(
  ('variant', 'check'),
  [
    pytest.param(variant, check, id=f'{variant}-{check}')
    for variant in VARIANTS
    for check in CHECKS
  ],
)
def test_every_variant_passes(variant, check):
  CHECKS[check](model_under_test_of(variant))
