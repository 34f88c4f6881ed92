"""The identity of a sweep, checked when it continues: its settings and its search space."""

import ast
from collections.abc import Mapping
from typing import Any

from launch.config_file import plain_settings
from launch.sweeping.space import UNREAD, Space
from transformer.config import Config
from transformer.errors import short_repr

# Settings that change no evaluation of a trial. A Slurm job sets train.grace_seconds.
_MAY_DIFFER = (
  'train.grace_seconds',
  'train.log_every',
  'train.checkpoint_every',
  'train.keep',
  *UNREAD,
)


def sweep_identity(config: Config, space: Space) -> dict[str, Any]:
  """Returns JSON data that identifies a sweep, for a comparison when it continues."""
  return {
    'settings': plain_settings(config),
    'space': space.text,
    'objective': space.objective,
  }


def differences(earlier: Mapping[str, Any], config: Config, space: Space) -> list[str]:
  """Returns a phrase for each difference from an earlier sweep that would change trials.

  `earlier` is the earlier sweep's `about`.
  """
  old = earlier['settings']
  new = plain_settings(config)
  phrases = [
    f'{name} was {short_repr(old.get(name))}, is now {short_repr(new.get(name))}'
    for name in sorted({*old, *new})
    if old.get(name) != new.get(name) and name not in _MAY_DIFFER
  ]
  # Comments and layout are ignored.
  if ast.dump(ast.parse(earlier['space'])) != ast.dump(ast.parse(space.text)):
    phrases.append('the search space has changed')
  return phrases
