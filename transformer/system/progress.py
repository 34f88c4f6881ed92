"""A progress bar, disabled unless stderr is a terminal."""

import shutil
import sys

from absl import logging
from tqdm import tqdm

# Fits in 80 columns: the bar fills the space that the text leaves.
_BAR = '{desc}{n_fmt}/{total_fmt} {percentage:.0f}% |{bar}| {remaining} left{postfix}'


def progress_bar(
  total: int, initial: int = 0, description: str = '', stays: bool = False
) -> tqdm:
  """Returns a bar on standard error that starts at `initial` of `total` steps.

  With `stays`, the bar remains visible after it is closed.
  """
  # The width is 80 if the terminal does not report one.
  return tqdm(
    total=total,
    initial=initial,
    desc=description,
    disable=not sys.stderr.isatty(),
    leave=stays,
    bar_format=_BAR,
    file=sys.stderr,
    smoothing=0.05,
    ncols=shutil.get_terminal_size().columns,
  )


def log_info(message: str):
  """Logs a message, above the progress bar if there is one."""
  with tqdm.external_write_mode(file=sys.stderr):
    logging.info(message)


def log_warning(message: str):
  """Logs a warning about a failure that the run survives, above the bar if there is one."""
  with tqdm.external_write_mode(file=sys.stderr):
    logging.warning(message)
