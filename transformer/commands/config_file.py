"""Reads the settings of a command line, changes a config, and writes one as a file for train.py."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from transformer.config import Config, flatten
from transformer.errors import UserError


def given_settings(config_flag: flags.FlagHolder) -> dict[str, Any]:
  """Returns the settings that the command line gives to the flag `config`, by dotted name."""
  given = config_flags.get_override_values(flags.FLAGS[config_flag.name])
  return flatten({name: value.to_dict() if isinstance(value, ConfigDict) else value
                  for name, value in given.items()})


def check_holds_configs(workdir: Path):
  """Refuses a directory with a colon, which would end a file's name in --config=FILE:ARGUMENT."""
  if ':' in str(workdir):
    raise UserError(f'--workdir must have no colon in it; got {workdir}')


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
  """Returns a config with other values for some keys, by dotted name."""
  tree = config.to_dict()
  for name, value in settings.items():
    group, _, key = name.rpartition('.')
    (tree[group] if group else tree)[key] = value
  return Config.from_dict(tree)


def config_file(docstring: str, config: Config, searched: Collection[str]) -> bytes:
  """Returns the content of a config file, whose `get_config` returns a config.

  It leaves out settings that have their default values, but not those `searched`, by dotted name.
  """
  settings, defaults = flatten(config.to_dict()), flatten(Config().to_dict())
  others = [name for name, value in settings.items()
            if value != defaults[name] and name not in searched]
  escaped = docstring.replace('\\', '\\\\').replace('"', '\\"')
  lines = [f'"""{escaped}"""\n\nfrom configs import base\n\n\ndef get_config():',
           '  """The settings."""', '  config = base.get_config()']
  for title, names in (('The searched settings.', searched), ('All other settings.', others)):
    if names:
      lines += ['', f'  # {title}']
    for name in names:
      value = settings[name]  # NumPy's numbers have another repr than Python's.
      lines.append(f'  config.{name} = {float(value) if isinstance(value, float) else value!r}')
  return '\n'.join([*lines, '', '  return config', '']).encode('utf-8', 'backslashreplace')


def plain_settings(config: Config) -> dict[str, Any]:
  """Returns settings by dotted name, as JSON gives them back."""
  return json.loads(json.dumps(flatten(config.to_dict())))
