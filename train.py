"""Trains a Transformer from a config.

  python train.py --config=configs/NAME.py --workdir=DIR [--config.group.key=value …]

A directory that holds a run is resumed. The keys, what they mean and their
defaults are in transformer/*/config.py.
"""

from pathlib import Path

from absl import flags, logging
from ml_collections import config_flags

from transformer import command_line
from transformer.config import Config, flatten
from transformer.errors import UserError
from transformer.training import run_directory

_CONFIG = config_flags.DEFINE_config_file('config', None, 'The config file.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')


def main(_):
  """Wires flags to a run."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError('--config=configs/NAME.py and --workdir=DIR are both needed')
  config = Config.from_dict(_CONFIG.value.to_dict())
  workdir = Path(_WORKDIR.value).expanduser()
  _check_workdir(workdir, config)
  if config.optimizer.warmup_steps >= config.train.steps:
    logging.warning('the learning rate is still warming up at the end: '
                    'optimizer.warmup_steps=%d, train.steps=%d',
                    config.optimizer.warmup_steps, config.train.steps)
  # JAX is imported only now, so that --help and a mistake answer at once.
  from transformer.training_run import train_run
  train_run(config, workdir)


def _check_workdir(workdir: Path, config: Config):
  """Refuses a directory that holds another run, or anything else."""
  command_line.check_folder('workdir', workdir)
  old = run_directory.read_config(workdir)
  if old is not None:
    run_directory.check_same_run(workdir, flatten(Config.from_dict(old).to_dict()),
                                 flatten(config.to_dict()))
  elif workdir.exists() and any(workdir.iterdir()):
    raise UserError(f'{workdir} is not empty and holds no run; choose another --workdir')


if __name__ == '__main__':
  command_line.run(main)
