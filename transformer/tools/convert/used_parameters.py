"""The parameters of a run, for an export that uses all of them or refuses."""

from collections.abc import Mapping
from typing import Any

from transformer.config import flatten
from transformer.errors import UserError


class UsedParameters:
  """Parameters by their dotted paths, which remember which of them were read."""

  def __init__(self, params: Mapping[str, Any], program: str):
    """Takes nested dicts of arrays, and the name of the program that they are exported to."""
    self._given, self._program = flatten(params), program
    self._unused = set(self._given)

  def __contains__(self, path: str) -> bool:
    """Returns whether there is such a parameter."""
    return path in self._given

  def __getitem__(self, path: str) -> Any:
    """Returns a parameter, which then counts as used.

    Raises:
      UserError: there is none.
    """
    if path not in self._given:
      raise UserError(f'{self._program} needs the parameter {path}, which the run lacks; export to '
                      f'--format=safetensors')
    self._unused.discard(path)
    return self._given[path]

  def check_all_used(self):
    """Refuses to leave parameters out, since translations would be others.

    Raises:
      UserError: some were not read; names them.
    """
    if self._unused:
      raise UserError(f'{self._program} has no place for these parameters of the run: '
                      f'{", ".join(sorted(self._unused))}; export to --format=safetensors')
