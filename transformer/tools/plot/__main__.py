r"""Plots losses, scores, learning rate and throughput of runs over training steps.

  python -m transformer.tools.plot RUN
  python -m transformer.tools.plot RUN_A RUN_B --output=curves.svg

The plot of one run is RUN/curves.svg. Several runs share their axes. Further sums of a custom
objective, which are logged as train/NAME, have a separate panel. The command reads
metrics.jsonl, so a run may still be training. It requires matplotlib: pip install -r
transformer/tools/plot/requirements.txt
"""

from absl import flags

from transformer import files
from transformer.errors import UserError, short_repr
from transformer.runs.run_directory import METRICS
from transformer.system import command_line, outputs
from transformer.system.installation import rewrite_commands
from transformer.tools._requirements import requirements
from transformer.tools.plot.curves import FORMATS, plot_runs

_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'The file to write; its name ends in one of '
  f"{', '.join(FORMATS)} (default: curves.svg in the run's directory).",
)


def main(argv):
  """Plots the runs given by the command line."""
  workdirs = list(map(files.as_path, argv[1:]))
  if not workdirs:
    raise UserError(
      rewrite_commands(
        'no run; pass the directory of one or more: python -m transformer.tools.plot RUN [RUN …]'
      )
    )
  if _OUTPUT.value is None and len(workdirs) > 1:
    raise UserError(
      f'--output is missing; pass --output=FILE for the curves of {len(workdirs)} runs'
    )
  output = (
    workdirs[0] / 'curves.svg'
    if _OUTPUT.value is None
    else files.as_path(_OUTPUT.value)
  )
  if output.suffix.removeprefix('.') not in FORMATS:
    raise UserError(
      f'--output must end in one of .{", .".join(FORMATS)}; got {short_repr(_OUTPUT.value)}'
    )
  outputs.check_file('output', output)
  outputs.check_not_input('output', output, [workdir / METRICS for workdir in workdirs])
  with requirements(__file__):
    plot_runs(workdirs, output)
  print(f'{output} has the curves of {", ".join(map(str, workdirs))}')


# `attention-plot` calls it.
start = command_line.entry_point(main, takes_arguments=True)

if __name__ == '__main__':
  start()
