r"""Trains a student on what teachers translate: data diversification, distillation by sequences.

  python launch/diversify.py --config=configs/NAME.py --workdir=DIR [--teachers=K] \
      [--directions=forward,back] [--config.group.key=value …]

K teachers of each direction are trained, each with another seed. They translate the training text:
the teachers of `forward` its sources, and those of `back` its targets. The student is trained on
the original pairs and on all new ones (Nguyen et al., 2020, "Data Diversification"). With
--directions=forward, that is distillation by sequences (Kim and Rush, 2016), with the original
pairs kept.

The three models have the settings of --config, but for the languages of `back`. A config file whose
`get_config` takes `model` has settings for each: `student`, `forward` and `back`, as
configs/multi30k.py. DIR gets

  forward_1/ back_1/ … student/   the runs
  text/                           the student's text, with NAME_forward and NAME_back
  translations/                   what each teacher writes

The same command goes on after a stop, in the middle of any run. Test text is not touched: the last
line says how to score the student.
"""

import inspect
import runpy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch.config_file import check_holds_configs, given_settings
from launch.diversifying.commands import carry_out, commands
from launch.diversifying.recipe import DIRECTIONS, begin, plan
from transformer.commands import shared_flags
from transformer.config import Config
from transformer.errors import UserError
from transformer.runs.lock import RunLock
from transformer.system import child_process, command_line, outputs

_CONFIG = shared_flags.define_config()
_WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of all runs and texts.')
_TEACHERS = flags.DEFINE_integer('teachers', 1, 'The number of teachers of each direction.')
_DIRECTIONS = flags.DEFINE_list('directions', list(DIRECTIONS), 'What teachers translate: forward '
                                'the sources, back the targets.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands, and start none of them.')


def main(_):
  """Wires flags to the recipe."""
  if _CONFIG.value is None or not _WORKDIR.value:
    raise UserError('--config=configs/NAME.py and --workdir=DIR are both needed')
  shared_flags.check_at_least(1, _TEACHERS)
  workdir = Path(_WORKDIR.value).expanduser().absolute()
  outputs.check_folder('workdir', workdir)
  check_holds_configs(workdir)
  filename = config_flags.get_config_filename(flags.FLAGS['config']).partition(':')[0]
  models = load_models(filename, given_settings(_CONFIG), _CONFIG.value)
  recipe = plan(models, _DIRECTIONS.value, _TEACHERS.value, workdir)
  if _DRY_RUN.value:
    for command in commands(recipe, workdir):
      print(shlex.join(command))
    return
  with RunLock(workdir):
    begin(recipe, workdir)
    carry_out(recipe, workdir, lambda command: child_process.run(child_process.leashed(command)))


def load_models(filename: str, overrides: Mapping[str, Any],
                student: ConfigDict) -> dict[str, Config]:
  """Returns the settings of `student`, `forward` and `back`.

  Args:
    filename: a config file. If its `get_config` takes `model`, it has settings for each of them.
    overrides: the settings of the command line, by dotted name.
    student: the settings of the file with those of the command line.
  """
  get_config = runpy.run_path(filename)['get_config']

  def load(model: str) -> Config:
    settings = get_config(model)
    settings.update_from_flattened_dict(overrides)
    return Config.from_dict(settings.to_dict())

  if 'model' in inspect.signature(get_config).parameters:
    return {model: load(model) for model in ('student', *DIRECTIONS)}
  tree = student.to_dict()
  data = tree['data']
  swapped = data | {'source_language': data['target_language'],
                    'target_language': data['source_language']}
  same = Config.from_dict(tree)
  return {'student': same, 'forward': same, 'back': Config.from_dict(tree | {'data': swapped})}


if __name__ == '__main__':
  command_line.run(main, launches=True)
