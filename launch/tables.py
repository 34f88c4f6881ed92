"""Tables for a paper or a spreadsheet: Markdown, LaTeX with the package booktabs, or CSV."""

import csv
import io
import re
import statistics
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate  # A requirement of sacreBLEU.

_STYLES = {'markdown': 'pipe', 'latex': 'latex_booktabs'}
FORMATS = (*_STYLES, 'csv')
_NUMBER = re.compile(r'[-+]?\.?\d|infinite$|nan$')


def format_table(rows: Sequence[Sequence[Any]], style: str) -> str:
  """Returns a table in one of `FORMATS`; the first row is the header.

  LaTeX's special characters and Markdown's `|` are escaped, columns of numbers are right-aligned,
  and empty columns are omitted. CSV has all columns, and numbers with all digits.
  """
  if style == 'csv':
    content = io.StringIO()
    csv.writer(content, lineterminator='\n').writerows(rows)
    return content.getvalue().rstrip('\n')
  columns = []
  alignments = []
  for column in zip(*rows, strict=True):
    cells = ['' if cell is None else str(cell) for cell in column]
    if style == 'markdown':
      cells = [cell.replace('|', r'\|') for cell in cells]
    filled = [cell for cell in cells[1:] if cell]
    if filled or len(rows) == 1:
      columns.append(cells)
      alignments.append('right' if all(map(_NUMBER.match, filled)) else 'left')
  return tabulate(
    zip(*columns, strict=True),
    'firstrow',
    tablefmt=_STYLES[style],
    colalign=alignments,
    disable_numparse=True,
  )


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
