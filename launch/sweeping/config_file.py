"""A config with some settings changed, and as a file that train.py can be given."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from transformer.config import Config, flatten


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
  """A config with other values for some keys, by dotted name.

  Raises:
    UserError: they do not go together.
  """
  tree = config.to_dict()
  for name, value in settings.items():
    group, _, key = name.rpartition('.')
    (tree[group] if group else tree)[key] = value
  return Config.from_dict(tree)


def config_file(docstring: str, config: Config, searched: Collection[str]) -> bytes:
  """Python that builds a config: what was searched first, then all else that is not a default.

  Args:
    docstring: what it is.
    config: all settings.
    searched: dotted names of those that come first.

  Returns:
    A file as those of configs/, with a `get_config`.
  """
  settings, defaults = flatten(config.to_dict()), flatten(Config().to_dict())
  others = [name for name, value in settings.items()
            if value != defaults[name] and name not in searched]
  escaped = docstring.replace('\\', '\\\\').replace('"', '\\"')
  lines = [f'"""{escaped}"""', '', 'from configs import base', '', '', 'def get_config():',
           '  """The settings."""', '  config = base.get_config()']
  for title, names in (('What was searched.', searched), ('All else.', others)):
    if names:
      lines += ['', f'  # {title}']
      lines += [f'  config.{name} = {_literal(settings[name])}' for name in names]
  return '\n'.join([*lines, '', '  return config', '']).encode('utf-8', 'backslashreplace')


def _literal(value: Any) -> str:
  """A value as Python writes it."""
  if isinstance(value, float):
    value = float(value)  # A subclass, as NumPy has, is written in another way.
    return repr(value) if math.isfinite(value) else f'float({str(value)!r})'
  return repr(value)
