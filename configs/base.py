"""Every setting with its default: the paper's base model, on no particular data.

The other configs start from it; it cannot be trained by itself. The docstrings of
transformer/*/config.py, and docs/configuration.md, explain each key. --config=RUN is
configs/base.py:RUN, the settings of the run in the directory RUN, or in a copy of its config.json.
"""

import dataclasses
import types
import typing

import ml_collections

from transformer.config import Config
from transformer.runs.run_directory import read_settings


def get_config(run: str = '') -> ml_collections.ConfigDict:
  """Returns all groups and keys of `transformer.config.Config`.

  Args:
    run: the directory of the run whose settings are the values, or its config.json; empty gives the
      defaults.

  Raises:
    UserError: the directory holds no run, or a damaged one, or one of another format.
  """
  config = ml_collections.ConfigDict(Config().to_dict())
  for group in dataclasses.fields(Config):
    if not dataclasses.is_dataclass(group.type):
      continue
    for key, kind in typing.get_type_hints(group.type).items():
      if not isinstance(kind, types.UnionType):
        continue
      first, *others = typing.get_args(kind)
      # A flag or a config could not change the type of a key otherwise.
      config[group.name][key] = (
        ml_collections.config_dict.placeholder(first)
        if others == [types.NoneType]
        else ml_collections.FieldReference(config[group.name][key], field_type=object)
      )
  if run:
    config.update(read_settings(run).to_dict())
  return config
