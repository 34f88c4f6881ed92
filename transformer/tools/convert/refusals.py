"""What a format cannot hold is refused by name."""

from collections.abc import Collection, Iterable

from transformer.errors import UserError


def refuse(program: str, rules: Iterable[tuple[bool, str, str]]):
  """Refuses what a program cannot hold; a rule is: the part fits, the part, the reason."""
  for fits, part, reason in rules:
    if not fits:
      raise UserError(f'{program} cannot hold {part}: {reason}; export to --format=safetensors')


def refuse_parameters(program: str, rest: Collection[str]):
  """Refuses to leave parameters out, since translations would be others."""
  refuse(program, [(not rest, ', '.join(sorted(rest)), 'it has no such parameters')])
