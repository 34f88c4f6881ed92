"""The curves of runs, drawn from the metrics that they left."""

import io
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer import files
from transformer.errors import UserError
from transformer.training.run_directory import CURVES, METRICS

FORMATS = ('svg', 'png', 'pdf')
_FEW = 50  # Points of a line that are worth a mark each.


class Points(NamedTuple):
  """A metric over a run.

  Attributes:
    steps: updates made.
    values: its value then; NaN where it was no finite number.
  """

  steps: list[int]
  values: list[float]


class _Panel(NamedTuple):
  """A title, and what is drawn under it: names of metrics, and how they are called there."""

  title: str
  metrics: Mapping[str, str]


_PANELS = (
    _Panel('loss a token', {'train/loss': 'training, smoothed labels', 'valid/loss': 'validation'}),
    _Panel('validation BLEU, greedy search', {'valid/bleu': ''}),
    _Panel('learning rate', {'train/learning_rate': ''}),
    _Panel('target tokens a second', {'tokens_per_second': ''}))


def read_points(workdir: str | os.PathLike) -> dict[str, Points]:
  """Reads every metric of a run, which may still be training, by name.

  Raises:
    UserError: there is no `metrics.jsonl`, or a line of it is none of metrics.
  """
  path = Path(workdir) / METRICS
  try:
    lines = path.read_bytes().splitlines(keepends=True)
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror}; a run\'s directory has one as soon '
                    f'as it trains') from error
  points: dict[str, Points] = {}
  # The last line has no end while it is being written, or if that was broken off.
  for number, line in enumerate(each for each in lines if each.endswith(b'\n')):
    try:
      row = json.loads(line)
      step = row.pop('step')
      if type(step) is not int or step < 0:
        raise ValueError(step)
      numbers = {name: math.nan if value is None else float(value) for name, value in row.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError,
            RecursionError) as error:
      raise UserError(f'line {number + 1} of {path} should be a JSON object of a step and numbers; '
                      f'it is damaged; restore it from a copy, or take the line out') from error
    for name, value in numbers.items():
      steps, values = points.setdefault(name, Points([], []))
      steps.append(step)
      values.append(value)
  return points


def draw(workdirs: Sequence[str | os.PathLike], output: str | os.PathLike):
  """Draws the curves of runs over one another, into a file that is whole or as it was.

  Args:
    workdirs: directories of runs; one that has logged nothing yet has empty panels.
    output: a file whose name ends in one of `FORMATS`.

  Raises:
    UserError: the metrics of a run cannot be read, or the file not be written.
  """
  runs = {str(each): read_points(each) for each in workdirs}
  files.write(output, _picture(Path(output).suffix.removeprefix('.'), _figure, runs))


def draw_scores(name: str, steps: Sequence[int], bleu: Sequence[float],
                intervals: Sequence[tuple[float, float]], output: str | os.PathLike):
  """Draws what the checkpoints of a run score.

  Args:
    name: what the text is called.
    steps: of the checkpoints.
    bleu: of each, percent.
    intervals: of each the ends of its 95 % interval.
    output: as in `draw`.

  Raises:
    UserError: the file cannot be written.
  """
  files.write(output, _picture(Path(output).suffix.removeprefix('.'), _score_figure, name, steps,
                               bleu, intervals))


def draw_for_run(workdir: str | os.PathLike, warn):
  """Leaves `curves.svg` in a run's directory, or warns that it cannot be: it ends no run."""
  try:
    draw([workdir], Path(workdir) / CURVES)
  except Exception as error:  # What has been trained is worth more than a picture of it.
    reason = ' '.join(str(error).split()) or type(error).__name__
    warn(f'{CURVES} was not drawn: {reason}')


def _picture(kind: str, make_figure: Callable, *arguments) -> bytes:
  """The file of a figure, a function of its arguments alone."""
  # It takes a good part of a second, and nothing but this needs it.
  import matplotlib
  logging.getLogger('matplotlib').setLevel(logging.ERROR)  # It tells of its caches of fonts.
  style = {'text.parse_math': False, 'path.simplify': False, 'svg.fonttype': 'none',
           'svg.hashsalt': CURVES, 'font.size': 9}
  defaults = {name: value for name, value in matplotlib.rcParamsDefault.items()
              if name != 'backend'}  # It would look for a screen, and no figure here needs one.
  with matplotlib.rc_context({**defaults, **style}), warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Of letters in a run's name that its own font lacks.
    content = io.BytesIO()
    make_figure(*arguments).savefig(content, format=kind, dpi=150,
                          metadata={} if kind == 'png' else {
                              'Date' if kind == 'svg' else 'CreationDate': None})
  return content.getvalue()


def _figure(runs: Mapping[str, Mapping[str, Points]]):
  import matplotlib
  from matplotlib.figure import Figure
  from matplotlib.ticker import FuncFormatter
  figure = Figure(figsize=(10, 6.5), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.1)  # A browser's letters may be wider.
  colours = (matplotlib.colormaps['tab10'].colors if len(runs) <= 10 else
             matplotlib.colormaps['turbo'].resampled(len(runs)).colors)
  places = figure.subplots(2, 2, sharex=True).flat
  for panel, place in zip(_PANELS, places, strict=True):
    for number, points in enumerate(runs.values()):
      for metric, dashes in zip(panel.metrics, ('-', '--'), strict=False):
        if metric not in points:
          continue
        steps, values = points[metric]
        mark = ('.' if dashes == '-' else 'o') if len(steps) <= _FEW else ''
        place.plot(steps, values, dashes, color=colours[number], linewidth=1.2, marker=mark,
                   markersize=4, gid=f'{number}/{metric}')
    place.set_title(panel.title, fontsize=10)
    _count_steps(place)
    if not place.lines:
      place.text(0.5, 0.5, 'nothing was logged', transform=place.transAxes, ha='center')
      place.set_yticks([])
    elif len(panel.metrics) > 1:
      place.legend([place.plot([], [], dashes, color='black', linewidth=1.2)[0]
                    for dashes in ('-', '--')], panel.metrics.values())
    elif panel.metrics.keys() == {'tokens_per_second'}:
      place.yaxis.set_major_formatter(FuncFormatter(lambda speed, _: f'{speed:,.0f}'))
      place.set_ylim(bottom=0)
  for place in places[2:]:
    place.set_xlabel('step')
  names = [_printable(name) for name in runs]
  if len(runs) == 1:
    figure.suptitle(names[0], fontsize=11)
  else:
    lines = [place.plot([], [], color=colours[number])[0] for number in range(len(runs))]
    legend = figure.legend(lines, [str(number) for number in range(len(runs))],
                           loc='outside lower center', ncols=min(len(runs), 3))
    for text, name in zip(legend.get_texts(), names, strict=True):
      text.set_text(name)  # As a label, one that begins with an underscore would be left out.
  return figure


def _score_figure(name: str, steps, bleu, intervals):
  from matplotlib.figure import Figure
  figure = Figure(figsize=(6, 3.5), layout='constrained')
  place = figure.subplots()
  below, above = zip(*((score - low, high - score)
                       for score, (low, high) in zip(bleu, intervals, strict=True)), strict=True)
  place.errorbar(steps, bleu, (below, above), fmt='o-', linewidth=1.2, markersize=4, capsize=3,
                 elinewidth=0.8)
  place.set_title(f'{_printable(name)}: BLEU with its 95 % interval', fontsize=10)
  _count_steps(place)
  place.set_xlabel('step')
  return figure


def _count_steps(place):
  """Whole numbers below a panel, and a grid."""
  from matplotlib.ticker import FuncFormatter, MaxNLocator
  place.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
  place.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f'{step:,.0f}'))
  place.grid(alpha=0.3)


def _printable(name: str) -> str:
  """A name of a file as XML can hold it."""
  text = os.fsencode(name).decode('utf-8', 'replace')
  return ''.join(each if each.isprintable() else '\N{REPLACEMENT CHARACTER}' for each in text)
