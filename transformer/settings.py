"""Groups of settings: ranges and choices beside each field, and values as the field's type."""

import dataclasses
import difflib
import math
import operator
import reprlib
import types
import typing
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from transformer.errors import UserError

# Larger than any useful number, and small enough that sums fit into 32 bits.
_LARGEST = 10**9
_BOUNDS = {'least': ('at least', operator.ge), 'above': ('above', operator.gt),
           'below': ('below', operator.lt), 'most': ('at most', operator.le)}
# Unicode categories that break a line or a file name: controls, separators, surrogates.
_FORBIDDEN = {'Cc', 'Cs', 'Zl', 'Zp'}
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 100
_brief.maxlong = 50


def setting(default: Any, *, choices: Collection[str] = (), least: float | None = None,
            above: float | None = None, below: float | None = None,
            most: float | None = None) -> Any:
  """Returns the field of a setting, with its choices or its range; `below=inf` is finite."""
  return dataclasses.field(default=default, metadata={
      'choices': choices, 'least': least, 'above': above, 'below': below, 'most': most})


def check_ranges(group: Any, prefix: str = ''):
  """Checks each setting of a group against its choices and its range; None is always allowed.

  Args:
    group: a dataclass with fields by `setting`.
    prefix: what comes before the name of a setting in errors, such as `train.`.

  Raises:
    UserError: names a setting that lies outside.
  """
  for field in dataclasses.fields(group):
    value, limits = getattr(group, field.name), field.metadata
    if limits.get('choices') and value not in limits['choices']:
      raise UserError(f'{prefix}{field.name} must be one of {", ".join(limits["choices"])}; '
                      f'got {shown(value)}')
    if not isinstance(value, (int, float)) or isinstance(value, bool):
      continue
    bounds = {name: limits.get(name) for name in _BOUNDS}
    if bounds['below'] is None and bounds['most'] is None and value > _LARGEST:
      bounds['most'] = _LARGEST
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if not all(_BOUNDS[name][1](value, bound) for name, bound in given.items()):
      wanted = ' and '.join('finite' if bound == math.inf else f'{_BOUNDS[name][0]} {bound}'
                            for name, bound in given.items())
      raise UserError(f'{prefix}{field.name} must be {wanted}; got {shown(value)}')


def freeze(cls: type, tree: Any, prefix: str = '', hint=lambda name: '') -> Any:
  """Returns a group, and the groups in it, from nested dicts; missing keys take their defaults.

  Args:
    cls: the dataclass of the group.
    tree: its values.
    prefix: its dotted name and a dot, for errors.
    hint: returns what errors say of an unknown dotted name, or nothing.

  Raises:
    UserError: a name does not exist, or a value has another type or is out of range.
  """
  if not isinstance(tree, Mapping):
    raise UserError(f'config.{prefix.rstrip(".")} must be a group of keys; got {shown(tree)}')
  values = {}
  for name, value in tree.items():
    kind = kind_of(cls, name, prefix, hint)
    values[name] = (freeze(kind, value, f'{prefix}{name}.', hint)
                    if dataclasses.is_dataclass(kind)
                    else converted(kind, value, f'config.{prefix}{name}'))
  return cls(**values)


def kind_of(cls: type, name: str, prefix: str = '', hint=lambda name: '') -> Any:
  """Returns the type of a field.

  Raises:
    UserError: there is no such field; the message suggests the nearest name.
  """
  kinds = typing.get_type_hints(cls)
  if name not in kinds:
    nearest = difflib.get_close_matches(str(name), kinds, n=1, cutoff=0.5)
    advice = hint(f'{prefix}{name}') or (
        f'did you mean config.{prefix}{nearest[0]}?' if nearest
        else f'the keys there are {", ".join(kinds)}')
    plain = isinstance(name, str) and name.isprintable()
    raise UserError(f'there is no key config.{prefix}{name if plain else shown(name)}; {advice}')
  return kinds[name]


def converted(kind: Any, value: Any, name: str) -> Any:
  """Returns a value as a type of a field; only lossless conversions are made.

  Raises:
    UserError: the value has another type.
  """
  kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
  several = isinstance(value, (tuple, list))
  for kind in kinds:
    if typing.get_origin(kind) is tuple:
      if several:
        item = typing.get_args(kind)[0]
        return tuple(converted(item, part, f'an item of {name}') for part in value)
    elif kind is float and type(value) is int and abs(value) <= _LARGEST:
      return float(value)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
      if kind is str and not _FORBIDDEN.isdisjoint(map(unicodedata.category, value)):
        raise UserError(f'{name} must be text on one line; got {shown(value)}')
      return value
  wanted = ' or '.join('a tuple' if typing.get_origin(kind) is tuple else f'of type {kind.__name__}'
                       for kind in kinds if kind is not types.NoneType)
  # On the command line, 2019 is a number.
  advice = (f'; text that looks like a number needs quotes of its own, as in "\'{value}\'"'
            if str in kinds and type(value) in (int, float) and abs(value) <= _LARGEST else '')
  raise UserError(f'{name} must be {wanted}; got {shown(value)}{advice}')


def shown(value: Any) -> str:
  """Returns any value as one short line of text."""
  try:
    return ' '.join(_brief.repr(value).splitlines())
  except ValueError:  # Python refuses to print integers of thousands of digits.
    return f'one of type {type(value).__name__} that is too long to show'
