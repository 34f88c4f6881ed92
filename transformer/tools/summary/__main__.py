r"""Summarizes a job before submission: sizes, memory, time, disk and questionable settings.

  python -m transformer.tools.summary --config=configs/wmt14.py:big --read_data=false \
      --devices=8 --config.train.tokens_per_batch=393216 --chip=h100
  python -m transformer.tools.summary --config=configs/text.py --config.data.dir=DIR --json

Nothing is trained or written, and no device is used. The dataset is read and encoded, as in
`train.py --check`; if it is on another machine, pass --read_data=false. Without --chip, all known
chips are compared. docs/summary.md explains the output and the warnings.
"""

import tempfile
from pathlib import Path

from absl import flags

from transformer import files
from transformer.cli import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.system import command_line

_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'The directory of the run, to check its disk space and progress; may be new.',
)
_CHIP = flags.DEFINE_string(
  'chip', None, 'A chip, such as h100, v5e or cpu (default: all).'
)
_DEVICES = flags.DEFINE_integer(
  'devices', None, 'The number of devices (default: as few as config.mesh needs).'
)
_READ_DATA = flags.DEFINE_bool(
  'read_data', True, 'Read the corpora that the config names.'
)
_JSON = flags.DEFINE_bool('json', False, 'Print one JSON object.')


def main(_):
  """Prints the summary of the job given by flags."""
  if _CONFIG.value is None:
    raise UserError('--config is missing; pass --config=configs/NAME.py')
  if _DEVICES.value is not None:
    shared_flags.check_at_least(1, _DEVICES)
  config = Config.from_dict(_CONFIG.value.to_dict())
  # Import JAX only now, so that --help and invalid flags respond immediately.
  from transformer.experiment.preparation import check_run
  from transformer.tools.summary.printing import print_summary
  from transformer.tools.summary.speed import CHIPS

  if _CHIP.value is not None and _CHIP.value not in CHIPS:
    raise UserError(f'--chip must be one of {", ".join(CHIPS)}; got {_CHIP.value}')
  workdir = files.as_path(_WORKDIR.value or '.')
  prepared = None
  if _READ_DATA.value:
    with tempfile.TemporaryDirectory() as folder:
      prepared = check_run(config, workdir if _WORKDIR.value else Path(folder, 'run'))
  print_summary(
    config,
    workdir,
    _DEVICES.value,
    prepared,
    as_json=_JSON.value,
    chip=_CHIP.value,
  )


start = command_line.entry_point(main)  # `attention-summary` calls it.

if __name__ == '__main__':
  start()
