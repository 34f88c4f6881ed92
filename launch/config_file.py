"""Reads the flags of a config, overrides config keys, and writes configs as files for train.py."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from transformer.config import Config, flatten


def command_line_overrides(config_flag: flags.FlagHolder) -> dict[str, Any]:
  """Returns the settings that the command line overrides, by dotted name."""
  overrides = config_flags.get_override_values(flags.FLAGS[config_flag.name])
  return flatten(
    {
      name: value.to_dict() if isinstance(value, ConfigDict) else value
      for name, value in overrides.items()
    }
  )


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
  """Returns a copy of `config` with new values for some keys, by dotted name."""
  tree = config.to_dict()
  for name, value in settings.items():
    group, _, key = name.rpartition('.')
    (tree[group] if group else tree)[key] = value
  return Config.from_dict(tree)


def config_file(docstring: str, config: Config, searched: Collection[str]) -> bytes:
  """Returns the content of a config file: its `get_config` returns `config`.

  Settings with default values are omitted, except those in `searched`, by dotted name.
  """
  settings = flatten(config.to_dict())
  defaults = flatten(Config().to_dict())
  escaped = docstring.replace('\\', '\\\\').replace('"', '\\"')
  lines = [
    f'"""{escaped}"""\n\nfrom configs import base\n\n\ndef get_config():',
    '  """The settings."""',
    '  config = base.get_config()',
  ]
  for name, value in settings.items():
    if value != defaults[name] or name in searched:
      mark = '  # searched' if name in searched else ''
      lines.append(f'  config.{name} = {value!r}{mark}')
  return '\n'.join([*lines, '  return config', '']).encode('utf-8', 'backslashreplace')


def plain_settings(config: Config) -> dict[str, Any]:
  """Returns the settings by dotted name, as read back from JSON."""
  return json.loads(json.dumps(flatten(config.to_dict())))
