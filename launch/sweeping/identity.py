"""What makes a sweep that goes on the same sweep: its settings and its space."""

import ast
from collections.abc import Mapping
from typing import Any

from launch.config_file import plain_settings
from launch.sweeping.space import UNREAD, Space
from transformer.config import Config
from transformer.errors import shown

# Settings that change no evaluation of a trial. A Slurm job sets its own time to save.
_MAY_DIFFER = (
  'train.grace_seconds',
  'train.log_every',
  'train.checkpoint_every',
  'train.keep',
  *UNREAD,
)


def about(config: Config, space: Space) -> dict[str, Any]:
  """Returns JSON data about a sweep, to compare it with when it goes on."""
  return {'settings': plain_settings(config), 'space': space.text}


def differences(before: Mapping[str, Any], config: Config, space: Space) -> list[str]:
  """Returns a phrase for each difference to a sweep, by its `about`, that would change trials."""
  old = before['settings']
  new = plain_settings(config)
  phrases = [
    f'{name} was {shown(old.get(name))}, is {shown(new.get(name))}'
    for name in sorted({*old, *new})
    if old.get(name) != new.get(name) and name not in _MAY_DIFFER
  ]
  # Without comments and layout.
  if ast.dump(ast.parse(before['space'])) != ast.dump(ast.parse(space.text)):
    phrases.append('the search space has changed')
  return phrases
