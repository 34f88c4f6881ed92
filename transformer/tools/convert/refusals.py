"""What an export cannot hold is refused by name."""

from collections.abc import Collection, Iterable

from transformer.errors import UserError


def refuse_settings(program: str, rules: Iterable[tuple[bool, str, str]]):
  """Refuses the first setting of a model that a program cannot represent.

  Args:
    program: the name of the program.
    rules: whether a setting fits, the setting with its value, and the reason.
  """
  for fits, setting, reason in rules:
    if not fits:
      raise UserError(f'{program} cannot hold model.{setting}: {reason}; export to '
                      f'--format=safetensors')


def refuse_parameters(program: str, rest: Collection[str]):
  """Refuses to leave parameters out, since translations would be others."""
  if rest:
    raise UserError(f'{program} has no place for these parameters of the run: '
                    f'{", ".join(sorted(rest))}; export to --format=safetensors')
