"""Draws the curves of runs from `metrics.jsonl`, and the BLEU of checkpoints."""

import io
import itertools
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer import files
from transformer.errors import UserError, optional
from transformer.runs.run_directory import CURVES, METRICS

FORMATS = ('svg', 'png', 'pdf')
_FEW = 50  # A line with at most this many points has a mark at each.


class Points(NamedTuple):
  """The values of one metric of a run.

  Attributes:
    steps: the numbers of updates.
    values: the metric at each step; NaN where it was not finite.
  """

  steps: list[int]
  values: list[float]


_DASHES = ('-', '--', ':', '-.', (0, (1, 4)), (0, (6, 4)))
# The title of each panel, with the labels of its metrics.
_PANELS = {
    'loss a token': {'train/loss': 'training, smoothed labels', 'valid/loss': 'validation'},
    'validation BLEU, greedy search': {'valid/bleu': 'BLEU', 'valid/f1': 'F1'},
    'learning rate': {'train/learning_rate': ''},
    'target tokens a second': {'tokens_per_second': ''}}


def read_points(workdir: str | os.PathLike) -> dict[str, Points]:
  """Reads all metrics of a run, by name; the run may still be training.

  Raises:
    UserError: there is no `metrics.jsonl`, or one of its lines holds no metrics.
  """
  path = Path(workdir) / METRICS
  try:
    lines = path.read_bytes().splitlines(keepends=True)
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror}; a run\'s directory has one as soon '
                    f'as it trains') from error
  points: dict[str, Points] = {}
  # The last line is incomplete while it is being written, or if its process was killed.
  for number, line in enumerate((line for line in lines if line.endswith(b'\n')), 1):
    try:
      row = json.loads(line)
      step = row.pop('step')
      if type(step) is not int or step < 0:
        raise ValueError(step)
      numbers = {name: math.nan if value is None else float(value) for name, value in row.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError,
            RecursionError) as error:
      raise UserError(f'line {number} of {path} should be a JSON object of a step and numbers; '
                      f'it is damaged; restore it from a copy, or remove the line') from error
    for name, value in numbers.items():
      steps, values = points.setdefault(name, Points([], []))
      steps.append(step)
      values.append(value)
  return points


def draw(workdirs: Sequence[str | os.PathLike], output: str | os.PathLike):
  """Draws the curves of runs on common axes, and writes the file atomically.

  Args:
    workdirs: a run that has logged nothing yet has no lines.
    output: a file whose name ends in one of `FORMATS`.

  Raises:
    UserError: the metrics of a run cannot be read, or the file cannot be written.
  """
  _save(output, _curves, {str(workdir): read_points(workdir) for workdir in workdirs})


def draw_scores(name: str, steps: Sequence[int], scores: Sequence[float],
                intervals: Sequence[tuple[float, float]], output: str | os.PathLike):
  """Draws the scores of a run's checkpoints with their 95 % intervals.

  Args:
    name: the text and the metric, for the title.

  Raises:
    UserError: the file cannot be written.
  """
  _save(output, _score_curve, name, steps, scores, intervals)


def draw_for_run(workdir: str | os.PathLike, warn: Callable[[str], None]):
  """Draws `curves.svg` in a run's directory; calls `warn` with the reason if that fails."""
  with optional(f'{CURVES} was not drawn', warn):
    draw([workdir], Path(workdir) / CURVES)


def _save(output: str | os.PathLike, make_figure: Callable, *arguments):
  """Writes the figure of `make_figure(*arguments)`; the same arguments give the same bytes."""
  # Imported here because matplotlib takes most of a second.
  import matplotlib
  logging.getLogger('matplotlib').setLevel(logging.ERROR)  # It logs messages about its font cache.
  kind = Path(output).suffix.removeprefix('.')
  style = {'text.parse_math': False, 'path.simplify': False, 'svg.fonttype': 'none',
           'svg.hashsalt': CURVES, 'font.size': 9}
  defaults = {name: value for name, value in matplotlib.rcParamsDefault.items()
              if name != 'backend'}  # The default backend would look for a screen.
  with matplotlib.rc_context({**defaults, **style}), warnings.catch_warnings():
    warnings.simplefilter('ignore')  # The font may lack letters of a run's name.
    content = io.BytesIO()
    undated = {'svg': {'Date': None}, 'pdf': {'CreationDate': None}}
    make_figure(*arguments).savefig(content, format=kind, dpi=150, metadata=undated.get(kind))
  files.write(output, content.getvalue())


def _curves(runs: Mapping[str, Mapping[str, Points]]):
  """Returns a figure with a panel for each of `_PANELS` and a colour for each run."""
  import matplotlib
  from matplotlib.figure import Figure
  from matplotlib.ticker import FuncFormatter
  figure = Figure(figsize=(10, 6.5), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.1)  # A browser's font may be wider.
  colours = (matplotlib.colormaps['tab10'].colors if len(runs) <= 10 else
             matplotlib.colormaps['turbo'].resampled(len(runs)).colors)
  all_axes = figure.subplots(2, 2, sharex=True).flat
  for (title, metrics), axes in zip(_panels(runs).items(), all_axes, strict=True):
    styles = list(zip(metrics, itertools.cycle(_DASHES), strict=False))
    for number, points in enumerate(runs.values()):
      for metric, dashes in styles:
        if metric not in points:
          continue
        steps, values = points[metric]
        mark = ('.' if dashes == '-' else 'o') if len(steps) <= _FEW else ''
        axes.plot(steps, values, linestyle=dashes, color=colours[number], linewidth=1.2,
                  marker=mark, markersize=4, gid=f'{number}/{metric}')
    axes.set_title(title, fontsize=10)
    _format_steps(axes)
    if not axes.lines:
      axes.text(0.5, 0.5, 'nothing was logged', transform=axes.transAxes, ha='center')
      axes.set_yticks([])
    elif len(metrics) > 1:
      axes.legend([axes.plot([], [], color='black', linestyle=dashes, linewidth=1.2)[0]
                   for _, dashes in styles], map(_printable, metrics.values()))
    elif 'tokens_per_second' in metrics:
      axes.yaxis.set_major_formatter(FuncFormatter(lambda speed, _: f'{speed:,.0f}'))
      axes.set_ylim(bottom=0)
  for axes in all_axes[2:]:
    axes.set_xlabel('step')
  names = [_printable(name) for name in runs]
  if len(runs) == 1:
    figure.suptitle(names[0], fontsize=11)
  else:
    lines = [axes.plot([], [], color=colours[number])[0] for number in range(len(runs))]
    legend = figure.legend(lines, [str(number) for number in range(len(runs))],
                           loc='outside lower center', ncols=min(len(runs), 3))
    for text, name in zip(legend.get_texts(), names, strict=True):
      text.set_text(name)  # matplotlib omits a label that begins with an underscore.
  return figure


def _panels(runs: Mapping[str, Mapping[str, Points]]) -> dict[str, dict[str, str]]:
  """Returns `_PANELS` with the metrics of further validation sets, and F1 only if there is any."""
  measured = dict.fromkeys(name for points in runs.values() for name in points)
  panels = {}
  for title, metrics in _PANELS.items():
    panels[title] = {name: label for name, label in metrics.items()
                     if name != 'valid/f1' or name in measured}
    for name, label in metrics.items():
      first, _, metric = name.partition('/')
      panels[title] |= {other: f'{label}, {other[len(first) + 1:-len(metric) - 1]}'
                        for other in measured
                        if first == 'valid' and other != name and other.startswith('valid/')
                        and other.endswith(f'/{metric}')}
  return panels


def _score_curve(name: str, steps, scores, intervals):
  """Returns a figure of scores over the steps, with an error bar for each interval."""
  from matplotlib.figure import Figure
  figure = Figure(figsize=(6, 3.5), layout='constrained')
  axes = figure.subplots()
  # The samples of few sentences may all have lower scores than the text.
  below, above = zip(*((max(0.0, score - low), max(0.0, high - score))
                       for score, (low, high) in zip(scores, intervals, strict=True)), strict=True)
  axes.errorbar(steps, scores, (below, above), fmt='o-', linewidth=1.2, markersize=4, capsize=3,
                elinewidth=0.8)
  axes.set_title(f'{_printable(name)} with its 95 % interval', fontsize=10)
  _format_steps(axes)
  axes.set_xlabel('step')
  return figure


def _format_steps(axes):
  """Labels the axis of steps with whole numbers, and adds a grid."""
  from matplotlib.ticker import FuncFormatter, MaxNLocator
  axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
  axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f'{step:,.0f}'))
  axes.grid(alpha=0.3)


def _printable(name: str) -> str:
  """Returns a file name as text that XML and fonts can represent."""
  text = os.fsencode(name).decode('utf-8', 'replace')
  return ''.join(letter if letter.isprintable() else '\N{REPLACEMENT CHARACTER}' for letter in text)
