r"""Draws the curves of runs: losses, validation BLEU, learning rate and speed, over the steps.

  python -m transformer.training.plot RUN
  python -m transformer.training.plot RUN_A RUN_B --output=curves.svg

Of one run the picture goes to its directory, as RUN/curves.svg, where train.py leaves one when it
is done. Several are drawn over one another. A run may still be training; only its metrics.jsonl is
read.
"""

from pathlib import Path

from absl import flags

from transformer import command_line
from transformer.errors import UserError
from transformer.training.curves import FORMATS, draw
from transformer.training.run_directory import CURVES

_OUTPUT = flags.DEFINE_string('output', None, 'Where the picture goes; by its end it is one of '
                              f'{", ".join(FORMATS)}. Default: curves.svg in the run\'s directory.')


def main(argv):
  """Wires the command line to the drawing."""
  workdirs = [Path(each).expanduser() for each in argv[1:]]
  if not workdirs:
    raise UserError('which runs? give the directory of one or more: '
                    'python -m transformer.training.plot RUN [RUN …]')
  if len({each.resolve() for each in workdirs}) < len(workdirs):
    raise UserError('a run is given twice; give each once')
  if _OUTPUT.value is None and len(workdirs) > 1:
    raise UserError(f'--output=FILE is needed where runs are several; got {len(workdirs)} runs')
  output = Path(_OUTPUT.value).expanduser() if _OUTPUT.value is not None else workdirs[0] / CURVES
  if output.suffix.removeprefix('.') not in FORMATS:
    raise UserError(f'--output must end in one of .{", .".join(FORMATS)}; got {_OUTPUT.value!r}')
  command_line.check_file('output', output)
  draw(workdirs, output)
  print(f'{output} has the curves of {", ".join(map(str, workdirs))}')


if __name__ == '__main__':
  command_line.run(main, takes_arguments=True)
