r"""Plots the losses, validation BLEU, learning rate and speed of runs against the step.

  python -m transformer.tools.plot RUN
  python -m transformer.tools.plot RUN_A RUN_B --output=curves.svg

The plot of one run is RUN/curves.svg, which train.py also draws at the end of training. Several
runs share their axes. The command reads only metrics.jsonl, so a run may still be training.
"""

from pathlib import Path

from absl import flags

from transformer.errors import UserError
from transformer.runs.curves import FORMATS, draw
from transformer.runs.run_directory import CURVES, METRICS
from transformer.system import command_line, outputs
from transformer.system.installation import spell_commands

_OUTPUT = flags.DEFINE_string('output', None, 'The file to write; its name ends in one of '
                              f'{", ".join(FORMATS)}; default: curves.svg in the run\'s directory.')


def main(argv):
  """Plots the runs of the command line."""
  workdirs = [Path(each).expanduser() for each in argv[1:]]
  if not workdirs:
    raise UserError(spell_commands('which runs? give the directory of one or more: '
                                   'python -m transformer.tools.plot RUN [RUN …]'))
  if len({each.resolve() for each in workdirs}) < len(workdirs):
    raise UserError('a run is given twice; give each once')
  if _OUTPUT.value is None and len(workdirs) > 1:
    raise UserError(f'--output=FILE is needed where runs are several; got {len(workdirs)} runs')
  output = Path(_OUTPUT.value).expanduser() if _OUTPUT.value is not None else workdirs[0] / CURVES
  if output.suffix.removeprefix('.') not in FORMATS:
    raise UserError(f'--output must end in one of .{", .".join(FORMATS)}; got {_OUTPUT.value!r}')
  outputs.check_file('output', output)
  outputs.check_not_read('output', output, [each / METRICS for each in workdirs])
  draw(workdirs, output)
  print(f'{output} has the curves of {", ".join(map(str, workdirs))}')


def start():
  """Runs `main` with the flags of the command line; `attention-plot` calls it."""
  command_line.run(main, takes_arguments=True)


if __name__ == '__main__':
  start()
