"""Rejects settings that an export format does not support."""

from collections.abc import Iterable

from transformer.errors import UserError
from transformer.model.config import ModelConfig


def check_supported(program: str, rules: Iterable[tuple[object, str, str]]):
  """Raises `UserError` if a rule is not met; a rule is (is supported, setting, reason)."""
  for fits, part, reason in rules:
    if not fits:
      raise UserError(
        f'{program} does not support {part}: {reason}; choose a different --format, such as '
        'safetensors'
      )


def check_no_plugins(program: str, config: ModelConfig):
  """Raises `UserError` for a custom model or a custom attention."""
  check_supported(
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
