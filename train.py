"""Trains a Transformer from a config.

  python train.py --config=configs/NAME.py --workdir=DIR [--config.group.key=value …]

A directory that holds a run is resumed. A run that a signal stops saves where it
is and exits with status 75; the same command goes on from there. The keys, what
they mean and their defaults are in transformer/*/config.py.
"""

import dataclasses
import os
import re
from pathlib import Path

from absl import flags, logging

from transformer import command_line
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.startup import be_reproducible
from transformer.training import run_directory
from transformer.training.preemption import Signals

_CONFIG = command_line.define_config()
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_DISTRIBUTED = flags.DEFINE_bool('distributed', False, 'Train together with the other processes '
                                 'that launch/local.py, srun or a TPU slice has started.')
_PROFILE = flags.DEFINE_string('profile', None, 'FROM:TO traces the steps FROM to TO, both '
                               'included, for TensorBoard and Perfetto.')
_CHECK = flags.DEFINE_bool('check', False, 'Check the flags, the config and the directory, and '
                           'train nothing.')


def main(_):
  """Wires flags to a run."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError('--config=configs/NAME.py and --workdir=DIR are both needed')
  config = Config.from_dict(_CONFIG.value.to_dict())
  workdir = Path(_WORKDIR.value).expanduser()
  profile = None if _PROFILE.value is None else _window(_PROFILE.value, config.train.steps)
  config = _check_workdir(workdir, config)
  if _CHECK.value:
    holds_run = (workdir / run_directory.CONFIG).exists()
    logging.info('the flags and the config are fine, and --workdir=%s %s; data and devices were '
                 'not looked at', workdir,
                 'holds this run, which would go on' if holds_run else 'is free for a run')
    return
  if config.optimizer.warmup_steps >= config.train.steps:
    logging.warning('the learning rate is still warming up at the end: '
                    'optimizer.warmup_steps=%d, train.steps=%d',
                    config.optimizer.warmup_steps, config.train.steps)
  if config.train.reproducible:
    be_reproducible(os.environ)
  # JAX is imported only now, so that --help and a mistake answer at once.
  with Signals(config.train.grace_seconds) as signals:
    from transformer.training_run import train_run
    if _DISTRIBUTED.value:
      from transformer.training import processes
      processes.join()
    train_run(config, workdir, profile, signals)


def _window(text: str, steps: int) -> tuple[int, int]:
  """The first and the last step that `--profile` names."""
  parts = re.fullmatch(r'(\d+):(\d+)', text, re.ASCII)
  first, last = map(int, parts.groups()) if parts else (0, 0)
  if not 1 <= first <= last:
    raise UserError(f'--profile must be FROM:TO, two steps with 1 ≤ FROM ≤ TO, such as 20:25; '
                    f'got {text!r}')
  if first > steps:
    raise UserError(f'--profile={text} begins after the last step, train.steps={steps}')
  return first, last


def _check_workdir(workdir: Path, config: Config) -> Config:
  """Refuses a directory that holds another run, or anything else; a run keeps what it found."""
  command_line.check_folder('workdir', workdir)
  old = run_directory.read_config(workdir)
  if old is not None:
    old = Config.from_dict(old)
    asked, found = config.train.tokens_per_batch, old.train.tokens_per_batch
    if old.train.fit_memory and config.train.fit_memory and asked != found:
      logging.info('the run keeps train.tokens_per_batch=%d, which it found to fit; asked for were '
                   '%d', found, asked)
      config = dataclasses.replace(config, train=dataclasses.replace(config.train,
                                                                     tokens_per_batch=found))
    run_directory.check_same_run(workdir, flatten(old.to_dict()), flatten(config.to_dict()))
  elif workdir.exists() and not run_directory.holds_nothing(workdir):
    raise UserError(f'{workdir} is not empty and holds no run; choose another --workdir')
  return config


if __name__ == '__main__':
  command_line.run(main)
