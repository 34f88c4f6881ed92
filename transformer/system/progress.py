"""A progress bar for people at a terminal; without a terminal it shows nothing."""

import os
import shutil
import sys
from typing import Any

from tqdm import tqdm

# Fits in 80 columns: the bar takes the space that the text leaves.
_BAR = '{desc}{n_fmt}/{total_fmt} {percentage:.0f}% |{bar}| {remaining} left{postfix}'
_SIZE = 80, 24  # Of a terminal that does not report it.


def progress_bar(total: int, initial: int = 0, description: str = '', stays: bool = False) -> tqdm:
  """Returns a bar on standard error.

  Args:
    total: the number of steps or sentences.
    initial: how many of them are done.
    description: the text before the numbers.
    stays: whether the bar stays visible once it is closed.
  """
  at_terminal = sys.stderr.isatty()
  return tqdm(total=total, initial=initial, desc=description, disable=not at_terminal, leave=stays,
              bar_format=_BAR, file=sys.stderr, smoothing=0.05,
              **(_size() if at_terminal else {}))


def _size() -> dict[str, Any]:
  """Returns tqdm's options for the size of the terminal, which may report a size of 0."""
  if all(os.get_terminal_size(sys.stderr.fileno())):
    return {'dynamic_ncols': True}
  columns, lines = shutil.get_terminal_size(_SIZE)
  return {'ncols': columns, 'nrows': lines}
