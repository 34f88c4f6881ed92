"""A comparison as a table for a paper or a spreadsheet."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from tabulate import tabulate  # A requirement of sacreBLEU.

from transformer.tools.compare.comparison import mean_and_deviation

_STYLES = {'markdown': 'github', 'latex': 'latex_booktabs'}
FORMATS = ('text', *_STYLES, 'csv')


def format_comparison(compared: Mapping[str, Any], style: str) -> str:
  """Returns a table with one row per system, the baseline first.

  Args:
    compared: the output of `comparison.compare`.
    style: `markdown`; `latex`, for the package booktabs; or `csv`, with all digits, and with
      separate columns for mean and deviation.
  """
  names = compared['signatures']
  if style == 'csv':
    return _as_csv(compared)
  tested = names if len(compared['systems']) > 1 else ()
  head = ['system', *names, *(f'p of {name}' for name in tested)]
  rows = []
  for name, system in compared['systems'].items():
    row = [name]
    if style == 'markdown':
      row = [name.replace('|', r'\|')]
    for metric in names:
      row.append(mean_and_deviation(system['scores'][metric]))
    for metric in tested:
      # The baseline and custom metrics have no p-value.
      p = system['p'].get(metric)
      row.append('' if p is None else f'{p:.4f}')
    rows.append(row)
  aligned = ['left', *['right'] * (len(head) - 1)]
  return tabulate(
    rows, head, tablefmt=_STYLES[style], disable_numparse=True, colalign=aligned
  )


def _as_csv(compared: Mapping[str, Any]) -> str:
  """Returns one row per system and metric."""
  content = io.StringIO()
  head = ['system', 'metric', 'mean', 'deviation', 'p', 'signature']
  writer = csv.writer(content, lineterminator='\n')
  writer.writerow(head)
  for name, system in compared['systems'].items():
    for metric, score in system['scores'].items():
      p = system['p'].get(metric)
      signature = compared['signatures'][metric]
      writer.writerow([name, metric, score['mean'], score['deviation'], p, signature])
  return content.getvalue().rstrip('\n')
