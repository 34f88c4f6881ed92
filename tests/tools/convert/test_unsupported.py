"""A model that was changed is exported by no format that does not know the change."""

import dataclasses

import pytest

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.tools.convert import ctranslate2_format, huggingface_format

# The settings that both formats hold, reject by name, or need not care about.
KNOWN = {
  'module',
  'num_layers',
  'decoder_layers',
  'model_dim',
  'ff_dim',
  'activation',
  'num_heads',
  'key_dim',
  'value_dim',
  'attention_bias',
  'dropout',
  'attention_dropout',
  'activation_dropout',
  'norm_position',
  'rms_norm',
  'query_key_norm',
  'positions',
  'max_positions',
  'share_embeddings',
  'tie_output',
  'output_bias',
  'attention',
  'dtype',
  'remat',
}


def test_each_setting_of_a_model_is_known_to_the_formats():
  # Teach a new one to the formats, or let them reject it.
  assert {field.name for field in dataclasses.fields(ModelConfig)} == KNOWN


@pytest.mark.parametrize(
  'check_model', [ctranslate2_format.check_model, huggingface_format.check_model]
)
@pytest.mark.parametrize(
  ('name', 'value'), [('module', 'my_model:Model'), ('attention', 'my_model:attend')]
)
def test_plugins_are_rejected_by_name(check_model, name, value):
  check_model(ModelConfig())
  with pytest.raises(
    UserError, match=rf'does not support model\.{name}={value}: .*safetensors$'
  ):
    check_model(ModelConfig(**{name: value}))
