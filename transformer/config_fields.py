"""Config fields with ranges and choices, and conversion of values to a field's type."""

import dataclasses
import difflib
import math
import operator
import types
import typing
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from transformer.errors import UserError, short_repr

# Larger than any useful number, and small enough that sums fit into 32 bits.
_LARGEST = 10**9
_BOUNDS = {
  'min': ('at least', operator.ge),
  'above': ('above', operator.gt),
  'below': ('below', operator.lt),
  'max': ('at most', operator.le),
}
# Unicode categories that break a line or a file name: controls, separators, surrogates.
_FORBIDDEN = {'Cc', 'Cs', 'Zl', 'Zp'}


def config_field(default: Any, **limits: Any) -> Any:
  """Returns a config field with its `choices`, or `min`, `above`, `below` and `max`.

  `below=inf` requires a finite number.
  """
  return dataclasses.field(default=default, metadata=limits)


def check_ranges(group: Any, prefix: str = ''):
  """Raises `UserError` if a `config_field` of a group violates its limits; None is always valid.

  `prefix` precedes the names of settings in errors, such as `train.`.
  """
  for field in dataclasses.fields(group):
    check_range(f'{prefix}{field.name}', getattr(group, field.name), **field.metadata)


def check_range(name: str, value: Any, **limits: Any):
  """Raises `UserError` if a value violates the limits of `config_field`; None is always valid."""
  if 'choices' in limits and value not in limits['choices']:
    raise UserError(
      f'{name} must be one of {", ".join(limits["choices"])}; got {short_repr(value)}'
    )
  if not isinstance(value, int | float) or isinstance(value, bool):
    return
  if value > _LARGEST and not {'below', 'max'} & limits.keys():
    limits['max'] = _LARGEST
  if not all(_BOUNDS[limit][1](value, bound) for limit, bound in limits.items()):
    expected = ' and '.join(
      'finite' if bound == math.inf else f'{_BOUNDS[limit][0]} {bound}'
      for limit, bound in limits.items()
    )
    raise UserError(f'{name} must be {expected}; got {short_repr(value)}')


def parse_config(cls: type, tree: Any, prefix: str = '') -> Any:
  """Returns a group, with nested groups, from nested dicts; missing keys take their defaults."""
  if not isinstance(tree, Mapping):
    raise UserError(
      f'config.{prefix.rstrip(".")} must be a group of keys; got {short_repr(tree)}'
    )
  values = {}
  for name, value in tree.items():
    kind = type_of_field(cls, name, prefix)
    values[name] = (
      parse_config(kind, value, f'{prefix}{name}.')
      if dataclasses.is_dataclass(kind)
      else coerce(kind, value, f'config.{prefix}{name}')
    )
  return cls(**values)


def type_of_field(cls: type, name: str, prefix: str) -> Any:
  """Returns the type of a field; if it is unknown, the `UserError` suggests the nearest name."""
  kinds = typing.get_type_hints(cls)
  if name not in kinds:
    raise UserError(
      f'there is no key config.{prefix}{name}; {did_you_mean(name, kinds, f"config.{prefix}")}'
    )
  return kinds[name]


def did_you_mean(name: str, choices: Collection[str], prefix: str = '') -> str:
  """Returns a hint for an unknown name: the nearest known name, or all of them."""
  nearest = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
  return (
    f'did you mean {prefix}{nearest[0]}?'
    if nearest
    else f'the keys there are {", ".join(choices)}'
  )


def coerce(kind: Any, value: Any, name: str) -> Any:
  """Returns a value as a field's type; raises `UserError` if the conversion loses information."""
  kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
  if hasattr(value, 'dtype') and not value.shape:  # A NumPy or JAX scalar.
    value = value.item()
  for kind in kinds:
    if typing.get_origin(kind) is tuple:
      if isinstance(value, (tuple, list)):
        item = typing.get_args(kind)[0]
        return tuple(coerce(item, part, f'an item of {name}') for part in value)
    elif kind is float and type(value) is int and abs(value) <= _LARGEST:
      return float(value)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
      if kind is str and not _FORBIDDEN.isdisjoint(map(unicodedata.category, value)):
        raise UserError(f'{name} must be text on one line; got {short_repr(value)}')
      return value
  expected = ' or '.join(
    'a tuple' if typing.get_origin(kind) is tuple else f'of type {kind.__name__}'
    for kind in kinds
    if kind is not types.NoneType
  )
  # On the command line, 2019 is parsed as a number.
  advice = (
    f'; text that looks like a number needs extra quotes, as in "\'{value}\'"'
    if str in kinds and type(value) in (int, float)
    else ''
  )
  raise UserError(f'{name} must be {expected}; got {short_repr(value)}{advice}')
