"""Parses the settings of a command line, as in `--config.GROUP.KEY=VALUE`.

Imports ml_collections only for a config, which not every command has.
"""

import ast
import contextlib
import os
import runpy
import warnings
from typing import Any

from absl import flags

from transformer import plugins
from transformer.errors import UserError, short_repr
from transformer.system import installation


def register():
  """Registers parsers for config flags: comma-separated lists, integers like 1e3, and None."""
  from ml_collections import config_flags

  register_parser = config_flags.register_flag_parser_for_type
  register_parser(int, _WholeNumber())
  register_parser(tuple, _Several())
  register_parser(object, OneOrSeveral())


def _value(argument: Any) -> Any:
  """Returns text as a Python literal if it is one; returns all other values unchanged."""
  # Text may be nested too deeply for Python, or contain escape sequences that Python warns about.
  with (
    contextlib.suppress(SyntaxError, ValueError, MemoryError, RecursionError),
    warnings.catch_warnings(action='ignore'),
  ):
    return ast.literal_eval(argument)
  return argument


class ConfigFile(flags.ArgumentParser):
  """Parses PATH or PATH:ARGUMENT; returns the config that the file's `get_config` returns."""

  def parse(self, argument: str) -> Any:
    from ml_collections import ConfigDict

    path, *arguments = argument.split(':', 1)
    if not os.path.isfile(path):
      raise UserError(
        f'there is no config file {path}; the current folder is {os.getcwd()}; pass the path of '
        f"a file to --config; this project's configs are in {installation.folder()}/configs"
      )
    with plugins.as_user_error(f'the config {argument} cannot be loaded'):
      get_config = runpy.run_path(path).get('get_config')
      config = get_config and get_config(*arguments)
    if not isinstance(config, ConfigDict):
      raise UserError(
        f'{path} must define get_config(), which returns an '
        f'ml_collections.ConfigDict; got {short_repr(config)}'
      )
    return config.lock()


class _WholeNumber(flags.IntegerParser):
  """Parses an integer, such as 1000 or 1e3, or the None of an optional setting."""

  def convert(self, argument: Any) -> int | None:
    value = _value(argument)
    if isinstance(value, float) and value.is_integer():
      value = int(value)
    if value is not None and type(value) is not int:
      raise ValueError('expected an integer, such as 1000 or 1e3')
    return value


class OneOrSeveral(flags.ArgumentParser):
  """Parses text, comma-separated texts, or a Python literal."""

  def parse(self, argument: Any) -> Any:
    value = _value(argument)
    if value != argument or not isinstance(value, str):
      return value
    if value.startswith(('(', '[')):
      raise ValueError(
        "text in a tuple needs quotes, as in \"('a', 'b')\", or no brackets"
      )
    texts = flags.ListParser().parse(value)
    return tuple(texts) if len(texts) > 1 else value


class _Several(OneOrSeveral):
  """Parses the same values into a tuple; an empty value and None become ().

  It is not a `TupleParser`, whose repeated flags accumulate: for each key, the last flag wins.
  """

  def parse(self, argument: Any) -> tuple:
    value = super().parse(argument)
    if isinstance(value, (tuple, list)):
      return tuple(value)
    return () if value in (None, '') else (value,)
