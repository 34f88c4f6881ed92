"""Flags that several commands share, and checks of their values."""

import functools
from typing import Any

from absl import flags

from transformer.errors import UserError

# absl then counts these flags as those of the module that asks for them, so --help lists them.
flags.disclaim_key_flags()


@functools.cache
def define_config() -> flags.FlagHolder:
  """Defines `--config`, and a flag for each key of the config that it names."""
  from ml_collections import config_flags  # Not every command has a config.

  from transformer.commands import config_values
  config_values.register()
  return config_flags.DEFINE_config_file(
      'config', None, 'The config file, or the directory of a run for its settings. '
      '--config.GROUP.KEY=VALUE changes a setting of it, such as --config.train.steps=100; '
      'transformer/*/config.py has them all.')


def define_checkpoint(
    choices: str = 'best, latest, or a step.') -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines `--checkpoint`, with the help text `choices`, and `--average`."""
  return (flags.DEFINE_string('checkpoint', 'best', choices),
          flags.DEFINE_integer('average', 1, 'Average the parameters of this many checkpoints.'))


def define_search() -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines `--beam_size` and `--alpha`."""
  return (flags.DEFINE_integer('beam_size', None, 'Beams; default: the run\'s config.'),
          flags.DEFINE_float('alpha', None, 'Length penalty; default: the run\'s config.'))


def given(*holders: flags.FlagHolder) -> dict[str, Any]:
  """Returns the values of the flags that were given, by name."""
  return {flag.name: flag.value for flag in holders if flag.value is not None}


def check_at_least(least: int, *holders: flags.FlagHolder):
  """Refuses a flag whose number is below `least`."""
  for flag in holders:
    if flag.value < least:
      raise UserError(f'--{flag.name} must be at least {least}; got {flag.value}')


def check_named(*holders: flags.FlagHolder):
  """Refuses a flag that is given without a value, as in `--output=`."""
  for flag in holders:
    if flag.present and flag.value in ('', []):
      raise UserError(f'--{flag.name}= names nothing; leave it out, or give it a value')
