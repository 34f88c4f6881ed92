"""What a format cannot hold, and a package that it lacks, are refused by name."""

import dataclasses
from collections.abc import Iterable

from transformer.errors import UserError
from transformer.model.config import ModelConfig

# The settings of a model that the formats know: they hold them, refuse them, or need not care.
_KNOWN = {
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
  'norm',
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


def refuse(program: str, rules: Iterable[tuple[bool, str, str]]):
  """Refuses what a program cannot hold; a rule is: the part fits, the part, the reason."""
  for fits, part, reason in rules:
    if not fits:
      raise UserError(
        f'{program} cannot hold {part}: {reason}; export to --format=safetensors'
      )


def refuse_unknown(program: str, config: ModelConfig):
  """Refuses a setting that was added without the formats, since a model may compute otherwise."""
  rules = [
    (
      ':' not in config.attention,
      f'model.attention={config.attention}',
      'it is a function of your own',
    )
  ]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    fits = field.name in _KNOWN or value == field.default
    rules.append((fits, f'model.{field.name}={value}', 'this export does not know it'))
  refuse(program, rules)
