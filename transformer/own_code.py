"""Parts of one's own: Python objects that a config or a flag names as MODULE:NAME."""

import hashlib
import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError, type_and_message

# A setting that names a part: MODULE:NAME, or a tuple of that and the numbers that it takes.
Setting = str | tuple[str | float, ...]


def load(spec: str, kind: str) -> Callable:
  """Imports a function or a class; its module may lie in the working directory.

  Args:
    spec: MODULE:NAME.
    kind: what it is, for people, such as `metric`.
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
  """Returns the module and the name of a part, and lets Python find modules beside the user."""
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
  """Returns the SHA-256 of the source of a part's module or package, which is not imported."""
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


def name_of(setting: Setting) -> str:
  """Returns the MODULE:NAME of a setting."""
  return setting if isinstance(setting, str) else setting[0]


def numbers_of(setting: Setting) -> tuple[float, ...]:
  """Returns the numbers of a setting."""
  return () if isinstance(setting, str) else setting[1:]


def check(key: str, setting: Setting, named: Iterable[str] = ()):
  """Checks the form of a setting; imports nothing.

  Args:
    key: what it is, such as `train.objective`.
    setting: its value.
    named: the names that the key may have too, for the error.
  """
  if not (setting and isinstance(name_of(setting), str) and all(name_of(setting).partition(':'))
          and all(isinstance(number, float) and math.isfinite(number)
                  for number in numbers_of(setting))):
    choices = f'one of {", ".join(named)}, or ' if named else ''
    raise UserError(f'{key} must be {choices}MODULE:FUNCTION, or a tuple of that and the numbers '
                    f'that it takes; got {setting!r}')


def build(setting: Setting, kind: str, *arguments) -> Any:
  """Imports a part, and calls it with arguments and the numbers of its setting."""
  spec, numbers = name_of(setting), numbers_of(setting)
  told = f'cannot be made with the numbers {", ".join(map(str, numbers)) or "none"}'
  return guarded(load(spec, kind), setting, kind, told)(*arguments, *numbers)


def guarded(function: Callable, setting: Setting, kind: str, told: str = 'failed') -> Callable:
  """Returns a function of a part whose mistakes are one line that names the part."""
  def call(*arguments, **more):
    try:
      return function(*arguments, **more)
    except UserError:
      raise
    except (Exception, SystemExit) as error:
      raise UserError(
          f'the {kind} {name_of(setting)} {told}: {type_and_message(error)}') from error
  return call
