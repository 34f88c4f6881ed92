"""Trains a Transformer from a config.

  python train.py --config=configs/NAME.py --workdir=DIR [--config.group.key=value …]
  python train.py --workdir=DIR [--config.group.key=value …]

If DIR holds a run, resumes it; without --config, with its saved settings. --config=RUN uses the
settings of another run. After a signal, a run saves its state and exits with status 75.
transformer/config.py and transformer/*/config.py document all settings and their defaults.
"""

import os
import sys
from pathlib import Path

from absl import flags, logging

# With PYTHONSAFEPATH=1, the folder of the script is not in `sys.path`.
if __name__ == '__main__':
  sys.path.insert(0, str(Path(__file__).resolve().parent))

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs import resuming, run_directory
from transformer.system import command_line, outputs
from transformer.system.machine import set_reproducible_flags
from transformer.system.signals import Signals

_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')
_DISTRIBUTED = flags.DEFINE_bool(
  'distributed',
  False,
  'Train together with the other processes that launch/local.py, srun or a TPU slice has started.',
)
_CHECK = flags.DEFINE_bool(
  'check',
  False,
  'Run all the checks that training does before compiling, print a summary, and exit.',
)
_READ_DATA = flags.DEFINE_bool(
  'read_data',
  True,
  "With --check: also read the config's data; pass --read_data=false if it is on another machine.",
)
_DEVICES = flags.DEFINE_integer(
  'check_devices', None, 'Check that N devices in total can share a batch.'
)
_PROCESSES = flags.DEFINE_integer(
  'check_processes',
  1,
  'With --check_devices: the number of processes that the devices belong to.',
)
_JSON = flags.DEFINE_bool(
  'json', False, 'With --check: print the summary of the job as one JSON object.'
)


def main(_):
  """Checks the flags, and trains."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError(
      'to start a run, pass --config=configs/NAME.py and --workdir=DIR; to resume one, only its '
      f'--workdir; got --workdir={_WORKDIR.value}'
    )
  config = Config.from_dict(_CONFIG.value.to_dict())
  workdir = files.as_path(_WORKDIR.value)
  outputs.check_folder('workdir', workdir)
  resuming.check_workdir(workdir, config)
  for warning in config.warnings():
    logging.warning(warning)
  if _DEVICES.value is not None:
    shared_flags.check_at_least(1, _DEVICES, _PROCESSES)
    from transformer.training.mesh import check_even_sharding

    check_even_sharding(
      config.mesh,
      config.rows_per_microbatch,
      config.decode.batch_size,
      _DEVICES.value,
      _PROCESSES.value,
    )
  if _CHECK.value:
    prepared = None
    state = 'is available for a new run'
    if run_directory.has_begun(workdir):
      state = 'contains this run, which would resume'
    if _READ_DATA.value:
      from transformer.experiment.preparation import check_run

      prepared = check_run(config, workdir)
      if prepared is None:
        state = 'contains this run, which is finished'
    _summarize(config, workdir, prepared)
    logging.info(
      '%s are valid; --workdir=%s %s; the hardware was not checked',
      'flags, config and files' if _READ_DATA.value else 'flags and config',
      workdir,
      state,
    )
    return
  if config.train.reproducible:
    set_reproducible_flags(os.environ)
  # JAX is imported only here, so that --help and invalid flags return at once.
  with Signals(config.train.grace_seconds) as signals:
    from transformer.experiment.train_loop import train_run

    if _DISTRIBUTED.value:
      from transformer.system import processes

      processes.initialize()
    train_run(config, workdir, signals)


def _summarize(config, workdir, prepared):
  """Prints the summary of a job, if the summary tool is present."""
  try:
    from transformer.tools.summary.printing import print_summary
  except ImportError as error:
    if _JSON.value:
      raise UserError(f'--json needs the summary tool: {error}') from error
    logging.warning(
      'no summary of the job, since the summary tool is missing: %s', error
    )
    return
  print_summary(config, workdir, _DEVICES.value, prepared, _JSON.value)


start = command_line.entry_point(main)  # `attention-train` calls this.

if __name__ == '__main__':
  start()
