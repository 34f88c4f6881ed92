"""What a format cannot hold is rejected by name."""

from collections.abc import Iterable

from transformer.errors import UserError
from transformer.model.config import ModelConfig


def refuse(program: str, rules: Iterable[tuple[object, str, str]]):
  """Raises `UserError` for what a program cannot hold; a rule is: it fits, its name, the reason."""
  for fits, part, reason in rules:
    if not fits:
      raise UserError(
        f'{program} cannot hold {part}: {reason}; export to --format=safetensors'
      )


def refuse_plugins(program: str, config: ModelConfig):
  """Raises `UserError` for a model or an attention of the user's own."""
  refuse(
    program,
    [
      (not config.module, f'model.module={config.module}', 'it is a custom model'),
      (
        ':' not in config.attention,
        f'model.attention={config.attention}',
        'it is a custom function',
      ),
    ],
  )
