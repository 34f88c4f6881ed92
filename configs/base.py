"""Every setting with its default: the paper's base model, for English to French from TFDS.

All other configs start from this one. The docstrings of transformer/config.py and
transformer/*/config.py explain each key, as does docs/configuration.md. --config=RUN is short for
--config=configs/base.py:RUN, the config of the run in the directory RUN. RUN may also be a copy of
the run's config.json.
"""

import dataclasses
import types
import typing

import ml_collections

from transformer.config import Config
from transformer.runs.run_directory import read_config


def get_config(run: str = '') -> ml_collections.ConfigDict:
  """Returns a config with all groups and keys of `transformer.config.Config`.

  Args:
    run: the directory of a run, or its config.json, with the values; empty: the default values.

  Raises:
    UserError: `run` is not a run, is corrupt, or was written in a different format.
  """
  config = ml_collections.ConfigDict(Config().to_dict())
  for group in dataclasses.fields(Config):
    if not dataclasses.is_dataclass(group.type):
      continue
    for key, kind in typing.get_type_hints(group.type).items():
      if not isinstance(kind, types.UnionType):
        continue
      first, *others = typing.get_args(kind)
      # A `ConfigDict` fixes the type of a key; these keys allow a second type.
      config[group.name][key] = (
        ml_collections.config_dict.placeholder(first)
        if others == [types.NoneType]
        else ml_collections.FieldReference(config[group.name][key], field_type=object)
      )
  if run:
    config.update(read_config(run).to_dict())
  return config
