"""What a format cannot hold, and a package that it lacks, are refused by name."""

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

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

_REQUIREMENTS = Path(__file__).absolute().with_name('requirements.txt')


@contextlib.contextmanager
def requirements() -> Iterator[None]:
  """Raises `UserError` with the command that installs a package if its import fails."""
  try:
    yield
  except ModuleNotFoundError as missing:
    package, install = missing.name.split('.')[0], [sys.executable, '-m', 'pip', 'install', '-r']
    raise UserError(
      f'the format needs {package}, which is not installed; install it with: '
      f'{shlex.join([*install, str(_REQUIREMENTS)])}'
    ) from missing


def refuse(program: str, rules: Iterable[tuple[bool, str, str]]):
  """Refuses what a program cannot hold; a rule is: the part fits, the part, the reason."""
  for fits, part, reason in rules:
    if not fits:
      raise UserError(f'{program} cannot hold {part}: {reason}; export to --format=safetensors')


def refuse_unknown(program: str, config: ModelConfig):
  """Refuses a setting that was added without the formats, since a model may compute otherwise."""
  refuse(
    program,
    [
      (
        ':' not in config.attention,
        f'model.attention={config.attention}',
        'it is a function of your own',
      )
    ],
  )
  refuse(
    program,
    [
      (
        getattr(config, field.name) == field.default,
        f'model.{field.name}={getattr(config, field.name)}',
        'this export does not know it',
      )
      for field in dataclasses.fields(config)
      if field.name not in _KNOWN
    ],
  )
