r"""Trains a student on what teachers translate: data diversification, distillation by sequences.

  python -m transformer.tools.distil --config=configs/NAME.py --workdir=DIR \
      [--teachers=K [--ensemble]] [--directions=forward,back] [--config.group.key=value …]

K teachers of each direction are trained, each with another seed. They translate the training text:
the teachers of `forward` its sources, and those of `back` its targets. The student is trained on
the original pairs and on all new ones (Nguyen et al., 2020, "Data Diversification"). With
--directions=forward, that is distillation by sequences (Kim and Rush, 2016).

The three models have the settings of --config, but for the languages of `back`. A config file whose
`get_config` takes `model` has settings for each: `student`, `forward` and `back`, as
configs/multi30k.py. DIR gets

  forward_1/ back_1/ … student/   the runs
  text/                           the student's text, with NAME_forward and NAME_back
  translations/                   what each teacher, or each ensemble, writes

The same command goes on after a stop, in the middle of any run.
"""

import shlex

from absl import flags
from ml_collections import config_flags

from transformer import files
from transformer.commands import shared_flags
from transformer.commands.config_file import given_settings
from transformer.errors import refuse
from transformer.runs.lock import RunLock
from transformer.system import command_line, outputs
from transformer.tools.distil.recipe import DIRECTIONS, begin, load_models, plan
from transformer.tools.distil.steps import carry_out, run, steps

_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of all runs and texts.')
_TEACHERS = flags.DEFINE_integer(
  'teachers', 1, 'The number of teachers of each direction.'
)
_DIRECTIONS = flags.DEFINE_list(
  'directions',
  list(DIRECTIONS),
  'What teachers translate: forward the sources, back the targets.',
)
_ENSEMBLE = flags.DEFINE_bool(
  'ensemble',
  False,
  'The teachers of a direction translate together, '
  'by their mean probabilities; otherwise each by itself.',
)
_CHECKPOINT = flags.DEFINE_enum(
  'checkpoint',
  'best',
  ['best', 'latest'],
  'The checkpoint with which each teacher translates.',
)
_AVERAGE = flags.DEFINE_integer(
  'average', 1, 'Average the parameters of this many checkpoints of each teacher.'
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Print the commands, and start none of them.'
)


def main(_):
  """Wires flags to the recipe."""
  refuse(
    (
      _CONFIG.value is None or not _WORKDIR.value,
      '--config=configs/NAME.py and --workdir=DIR are both needed',
    )
  )
  shared_flags.check_at_least(1, _TEACHERS, _AVERAGE)
  workdir = files.as_path(_WORKDIR.value).absolute()
  outputs.check_folder('workdir', files.as_path(_WORKDIR.value))
  # A colon would end a file's name in --config=FILE:ARGUMENT.
  refuse((':' in str(workdir), f'--workdir must have no colon in it; got {workdir}'))
  models = load_models(
    config_flags.get_config_filename(flags.FLAGS['config']),
    given_settings(_CONFIG),
    _CONFIG.value,
    _DIRECTIONS.value,
  )
  recipe = plan(
    models,
    _DIRECTIONS.value,
    _TEACHERS.value,
    workdir,
    {
      'ensemble': _ENSEMBLE.value,
      'checkpoint': _CHECKPOINT.value,
      'average': _AVERAGE.value,
    },
  )
  if _DRY_RUN.value:
    for step in steps(recipe, workdir):
      print(shlex.join(step.command))
    return
  with RunLock(workdir):
    begin(recipe, workdir)
    carry_out(recipe, workdir, run)


start = command_line.starter(main, launches=True)  # `attention-distil` calls it.

if __name__ == '__main__':
  start()
