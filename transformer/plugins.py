"""Plugins: user-defined Python objects that a config or a flag names as MODULE:NAME."""

import contextlib
import hashlib
import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError, short_repr, type_and_message

# A setting that names a plugin: MODULE:NAME, or a tuple of MODULE:NAME, its numeric arguments, and
# at the end a dict of its keyword arguments.
Setting = str | tuple[str | float | Mapping, ...]


def load(spec: str, kind: str) -> Callable:
  """Imports a function or a class; its module may be in the working directory.

  `kind` is the human-readable kind of plugin, such as `metric`.
  """
  module = _module_of(spec, kind)
  with as_user_error(
    f'the {kind} {spec} cannot be imported; its module must be installed, or be in {os.getcwd()}'
  ):
    plugin = getattr(importlib.import_module(module), spec.partition(':')[2], None)
  if not callable(plugin):
    raise UserError(
      f'the {kind} {spec} must be a function or a class of {module}; got {short_repr(plugin)}'
    )
  return plugin


def digests(kinds: Mapping[str, str]) -> dict[str, str]:
  """Returns the SHA-256 of each plugin's module or package; does not import the plugins."""
  result = {}
  for spec, kind in kinds.items():
    module = _module_of(spec, kind)
    with as_user_error(f'the source of the {kind} {spec} cannot be read'):
      if (place := importlib.util.find_spec(module)) is None:
        raise ModuleNotFoundError(f'no module named {module}')
      path = Path(place.origin)
      is_package = place.submodule_search_locations
      sources = sorted(path.parent.rglob('*.py')) if is_package else [path]
      content = b''.join(source.read_bytes() for source in sources)
      result[spec] = hashlib.sha256(content).hexdigest()
  return result


def _module_of(spec: str, kind: str) -> str:
  """Returns MODULE of MODULE:NAME, and adds the working directory to `sys.path`."""
  if not all(spec.partition(':')):
    raise UserError(
      f'a {kind} must be given as MODULE:NAME, such as my_{kind}s:mine; got {short_repr(spec)}'
    )
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())
  return spec.partition(':')[0]


def name_of(setting: Setting) -> str:
  """Returns the MODULE:NAME of a setting."""
  return setting if isinstance(setting, str) else setting[0]


def check(key: str, setting: Setting, builtin: Iterable[str]):
  """Raises `UserError` unless a setting is one of `builtin` or well-formed; imports nothing."""
  if setting in tuple(builtin):  # A tuple with a dict is not hashable.
    return
  spec, numbers, by_name = _parse_setting(setting or ('',))
  if not (
    isinstance(spec, str) and all(spec.partition(':')) and all(map(_is_number, numbers))
  ):
    choices = f'one of {", ".join(builtin)}, or ' if any(builtin) else ''
    raise UserError(
      f'{key} must be {choices}MODULE:NAME, or a tuple of it, its positional numbers, and a '
      f'dict of its keyword arguments; got {short_repr(setting)}'
    )
  for name, value in by_name.items():
    if not (
      isinstance(name, str)
      and (isinstance(value, int | str | None) or _is_number(value))
    ):
      raise UserError(
        f'keyword arguments of {key} must be numbers, strings, booleans or None; got '
        f'{short_repr(name)}: {short_repr(value)}'
      )


def _is_number(value: Any) -> bool:
  return isinstance(value, float) and math.isfinite(value)


def _parse_setting(setting: Setting) -> tuple[Any, list, Mapping]:
  """Returns MODULE:NAME, the positional numbers and the keyword arguments of a setting."""
  spec, *numbers = (setting,) if isinstance(setting, str) else setting
  if numbers and isinstance(numbers[-1], Mapping):
    return spec, numbers[:-1], numbers[-1]
  return spec, numbers, {}


def build(setting: Setting, kind: str, *arguments) -> Any:
  """Imports a plugin, and calls it with `arguments` and with the arguments in its setting."""
  spec, numbers, by_name = _parse_setting(setting)
  make = load(spec, kind)
  with as_user_error(f'the {kind} {setting} cannot be built'):
    return make(*arguments, *numbers, **by_name)


@contextlib.contextmanager
def as_user_error(failure: str) -> Iterator[None]:
  """Turns an exception of a plugin into a `UserError`; a context manager or a decorator."""
  try:
    yield
  except UserError:
    raise
  except (Exception, SystemExit) as error:  # A plugin may raise anything.
    raise UserError(f'{failure}: {type_and_message(error)}') from error
