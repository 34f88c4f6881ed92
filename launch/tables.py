"""Tables for a paper or a spreadsheet: Markdown, LaTeX with the package booktabs, or CSV."""

import csv
import io
import statistics
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate  # A requirement of sacreBLEU.

_STYLES = {'markdown': 'github', 'latex': 'latex_booktabs'}
FORMATS = (*_STYLES, 'csv')


def format_table(rows: Sequence[Sequence[Any]], style: str) -> str:
  """Returns a table in one of `FORMATS`; the first row is the header.

  LaTeX's special characters and Markdown's `|` are escaped. In CSV, numbers have all digits.
  """
  if style == 'csv':
    content = io.StringIO()
    csv.writer(content, lineterminator='\n').writerows(rows)
    return content.getvalue().rstrip('\n')
  lines = []
  for row in rows:
    cells = ['' if cell is None else str(cell) for cell in row]
    if style == 'markdown':
      cells = [cell.replace('|', r'\|') for cell in cells]
    lines.append(cells)
  head, *body = lines
  return tabulate(body, head, tablefmt=_STYLES[style], disable_numparse=True)


def column_titles(name: str, style: str) -> list[str]:
  """Returns the titles of the columns that `over_seeds` fills."""
  return [name, f'{name} deviation'] if style == 'csv' else [name]


def over_seeds(values: Sequence[float], style: str, digits: str) -> list[Any]:
  """Returns the cells of a metric that was measured with one or more seeds.

  The cells are the mean and, with several seeds, the sample standard deviation: `27.00 ± 0.82` with
  the format specification `digits`. In CSV, they are two cells with all digits.
  """
  mean = statistics.fmean(values)
  deviation = statistics.stdev(values) if len(values) > 1 else None
  if style == 'csv':
    return [mean, deviation]
  if deviation is None:
    return [f'{mean:{digits}}']
  return [f'{mean:{digits}} ± {deviation:{digits}}']
