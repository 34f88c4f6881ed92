"""Draws the metrics of runs, and the scores of their checkpoints, against the step."""

import io
import itertools
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from absl import logging

from transformer import files
from transformer.errors import UserError
from transformer.runs.metrics_file import read_metrics
from transformer.runs.run_directory import EVALUATIONS, METRICS

FORMATS = ('svg', 'png', 'pdf')
# The logarithm of train/perplexity: train/loss may be smoothed, and validation losses never are.
NLL = 'train/nll'
# The title of each panel, with a pattern for the names of its metrics.
_PANELS = {
  'cross entropy a token, without label smoothing': rf'{NLL}|valid/(.+/)?loss',
  'score': r'valid/(.+/)?(bleu|f1)',
  'learning rate': 'train/learning_rate',
  'target tokens a second': 'tokens_per_second',
}
_DASHES = ('-', '--', ':', '-.')


def read_points(workdir: Path) -> dict[str, tuple[list[int], list[float]]]:
  """Returns the steps and the values of each metric of a run, and `NLL`; it may be training."""
  path = workdir / METRICS
  try:
    lines = path.read_bytes().count(b'\n')
  except OSError as error:
    raise UserError(
      f"{path} cannot be read: {error.strerror}; a run's directory has one as soon as it trains"
    ) from error
  points = {}
  rows = read_metrics(path)
  if len(rows) < lines:
    logging.warning(
      '%s has damaged lines, which are left out: %d', path, lines - len(rows)
    )
  for row in rows:
    step = row.pop('step')
    for name, value in row.items():
      steps, numbers = points.setdefault(name, ([], []))
      steps.append(step)
      numbers.append(math.nan if value is None else float(value))
  if 'train/perplexity' in points:
    steps, perplexities = points['train/perplexity']
    points[NLL] = steps, [math.log(perplexity) for perplexity in perplexities]
  return points


def draw(workdirs: Sequence[Path], output: Path):
  """Draws runs on common axes, and writes a file whose name ends in one of `FORMATS`."""
  import matplotlib  # Here, since it takes most of a second.
  from matplotlib.figure import Figure

  runs = {_printable(workdir): read_points(workdir) for workdir in workdirs}
  with matplotlib.rc_context({'text.parse_math': False, 'svg.fonttype': 'none'}):
    figure = Figure(figsize=(11, 7), layout='constrained')
    grid = figure.subplots(2, 2, sharex=True).flat
    for axes, (title, pattern) in zip(grid, _PANELS.items(), strict=True):
      for number, (run, points) in enumerate(runs.items()):
        _draw_metrics(axes, run, points, pattern, number)
      if title == 'score':
        for number, workdir in enumerate(workdirs):
          _draw_checkpoints(axes, workdir, f'C{number}')
      axes.set(title=title, xlabel='step')
      axes.grid(alpha=0.3)
      if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
    content = io.BytesIO()
    figure.savefig(content, format=output.suffix.removeprefix('.'), dpi=150)
  files.write(output, content.getvalue())


def _draw_metrics(axes, run: str, points, pattern: str, number: int):
  """Draws the metrics of a run that match a pattern."""
  metrics = sorted(name for name in points if re.fullmatch(pattern, name))
  for metric, dashes in zip(metrics, itertools.cycle(_DASHES), strict=False):
    name = 'train' if metric == NLL else metric.removesuffix('/loss')
    steps, values = points[metric]
    axes.plot(
      steps,
      values,
      dashes,
      color=f'C{number}',
      label=f'{run}: {name}',
      marker='.' if len(steps) < 50 else '',
      gid=f'{number}/{metric}',
    )


def _draw_checkpoints(axes, workdir: Path, colour: str):
  """Draws the scores that `eval.py --checkpoint=all` wrote, with their 95 % intervals."""
  for path in sorted((workdir / EVALUATIONS).glob('*.all.*.json')):
    rows = json.loads(path.read_bytes())['checkpoints']
    metric = next(name for name in rows[0] if name != 'step')
    scores = [row[metric] for row in rows]
    # The samples of few sentences may all have lower scores than the text.
    below = [max(0.0, row[metric] - row[f'{metric}_interval_95'][0]) for row in rows]
    above = [max(0.0, row[f'{metric}_interval_95'][1] - row[metric]) for row in rows]
    axes.errorbar(
      [row['step'] for row in rows],
      scores,
      [below, above],
      fmt='s',
      color=colour,
      capsize=3,
      label=f'{_printable(workdir)}: {metric}, {path.stem}',
    )


def _printable(path: Path) -> str:
  """Returns a path as text that XML can represent."""
  text = os.fsencode(path).decode('utf-8', 'replace')
  return ''.join(
    letter if letter.isprintable() else '\N{REPLACEMENT CHARACTER}' for letter in text
  )
