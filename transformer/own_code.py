"""Parts of one's own: Python objects that a config or a flag names as MODULE:NAME."""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from transformer.errors import UserError, type_and_message


def load(spec: str, kind: str) -> Callable:
  """Imports a function or a class; its module may lie in the working directory.

  Args:
    spec: MODULE:NAME.
    kind: what it is, for people, such as `metric`.

  Raises:
    UserError: there is no such module or name, or the module cannot be imported.
  """
  module, name = parts(spec, kind)
  try:
    part = getattr(importlib.import_module(module), name, None)
  except (Exception, SystemExit) as error:  # A program may raise anything.
    raise UserError(f'the {kind} {spec} cannot be imported: {type_and_message(error)}; its module '
                    f'must be installed, or lie in {os.getcwd()}') from error
  if not callable(part):
    raise UserError(f'the {kind} {spec} needs a function or class {name} in {module}; '
                    f'got {"none" if part is None else repr(part)}')
  return part


def parts(spec: str, kind: str) -> tuple[str, str]:
  """Returns the module and the name of a part, and lets Python find modules beside the user.

  Raises:
    UserError: it is not MODULE:NAME.
  """
  module, colon, name = spec.partition(':')
  if not (module and colon and name):
    raise UserError(f'a {kind} must be given as MODULE:NAME, such as my_{kind}s:mine; '
                    f'got {spec!r}')
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())
  return module, name


def digests(kinds: Mapping[str, str]) -> dict[str, str]:
  """Returns the digest of each part of one's own, from what kind of part each is."""
  return {spec: digest(spec, kind) for spec, kind in kinds.items()}


def digest(spec: str, kind: str) -> str:
  """Returns the SHA-256 of the source of a part's module or package, to record it with a run.

  The module is not imported.

  Raises:
    UserError: no such module is found, or it has no file.
  """
  module, _ = parts(spec, kind)
  try:
    place = importlib.util.find_spec(module)
  except (Exception, SystemExit) as error:  # Importing its package may raise anything.
    raise UserError(f'the {kind} {spec} cannot be found: {type_and_message(error)}') from error
  if place is None or not place.origin or not Path(place.origin).is_file():
    raise UserError(f'the {kind} {spec} cannot be found; its module must be installed, or lie in '
                    f'{os.getcwd()}')
  path = Path(place.origin)
  of_package = sorted(path.parent.rglob('*.py')) if place.submodule_search_locations else [path]
  return hashlib.sha256(b''.join(file.read_bytes() for file in of_package)).hexdigest()
