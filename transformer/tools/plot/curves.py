"""Plots the metrics of runs over training steps."""

import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import files
from transformer.errors import UserError, one_line
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import METRICS

FORMATS = ('svg', 'png', 'pdf')
# The logarithm of train/perplexity: train/loss may use label smoothing, but validation losses never
# do.
NLL = 'train/nll'
# The title of each panel, with a pattern for the names of its metrics.
_PANELS = {
  'cross entropy per token, without label smoothing': rf'{NLL}|valid/(.+/)?loss',
  'score': r'valid/(.+/)?(?!(loss|perplexity)$)[^/]+',
  'learning rate': 'train/learning_rate',
  'target tokens per second': 'tokens_per_second',
}
_EXTRA_SUMS = 'further sums of the objective, per token'  # present if a run has any
_DASHES = ('-', '--', ':', '-.')
_MAX_MARKED = 50  # curves with fewer points have a marker at each point


class Points(NamedTuple):
  """A curve.

  Attributes:
    steps: numbers of training steps, ascending.
    values: the values of a metric after these steps.
  """

  steps: list[int]
  values: list[float]


def read_points(workdir: Path) -> dict[str, Points]:
  """Returns the points of each metric of a run, and of `NLL`; the run may be training.

  Raises:
    UserError: the run has no metrics.
  """
  path = workdir / METRICS
  if not path.exists():
    raise UserError(
      f'{path} is missing; a run writes it once training starts; pass the directory of a run'
    )
  points: dict[str, Points] = {}
  for row in read_metrics(path):
    step = row.pop('step')
    for name, value in row.items():
      metric = points.setdefault(name, Points([], []))
      metric.steps.append(step)
      metric.values.append(math.nan if value is None else float(value))
  if 'train/perplexity' in points:
    steps, perplexities = points['train/perplexity']
    points[NLL] = Points(steps, [math.log(perplexity) for perplexity in perplexities])
  return points


def plot_runs(workdirs: Sequence[Path], output: Path):
  """Plots runs on shared axes, and writes a file with an extension in `FORMATS`."""
  import matplotlib  # Imported here, since it takes most of a second.
  from matplotlib.figure import Figure

  from transformer.training.objective import REQUIRED_SUMS, RESERVED_METRICS

  runs = [(one_line(str(workdir)), read_points(workdir)) for workdir in workdirs]
  known = '|'.join((*REQUIRED_SUMS, *RESERVED_METRICS))
  extra_sums = rf'train/(?!({known})$).+'
  panels = dict(_PANELS)
  if any(re.fullmatch(extra_sums, name) for _, points in runs for name in points):
    panels[_EXTRA_SUMS] = extra_sums
  with matplotlib.rc_context({'text.parse_math': False, 'svg.fonttype': 'none'}):
    height = math.ceil(len(panels) / 2)
    figure = Figure(figsize=(11, 3.5 * height), layout='constrained')
    subplots = figure.subplots(height, 2, sharex=True).flat
    for axes in subplots[len(panels) :]:
      axes.set_visible(False)
    for axes, (title, pattern) in zip(subplots, panels.items(), strict=False):
      for index, (run, points) in enumerate(runs):
        _draw_metrics(axes, run, points, pattern, index)
      axes.set(title=title, xlabel='step')
      axes.tick_params(labelbottom=True)  # Also above a place without a panel.
      axes.grid(alpha=0.3)
      if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
    content = io.BytesIO()
    figure.savefig(content, format=output.suffix.removeprefix('.'), dpi=150)
  files.write(output, content.getvalue())


def _draw_metrics(
  axes: Any, run: str, points: Mapping[str, Points], pattern: str, index: int
):
  """Plots the metrics of a run that match a pattern."""
  metrics = sorted(name for name in points if re.fullmatch(pattern, name))
  for metric, dashes in zip(metrics, itertools.cycle(_DASHES), strict=False):
    name = 'train' if metric == NLL else metric.removesuffix('/loss')
    steps, values = points[metric]
    axes.plot(
      steps,
      values,
      dashes,
      color=f'C{index}',
      label=f'{run}: {name}',
      marker='.' if len(steps) < _MAX_MARKED else '',
      gid=f'{index}/{metric}',
    )
