"""A progress bar for people at a terminal; without a terminal it shows nothing."""

import shutil
import sys

from absl import logging
from tqdm import tqdm

# Fits in 80 columns: the bar takes the space that the text leaves.
_BAR = '{desc}{n_fmt}/{total_fmt} {percentage:.0f}% |{bar}| {remaining} left{postfix}'


def progress_bar(
  total: int, initial: int = 0, description: str = '', stays: bool = False
) -> tqdm:
  """Returns a bar on standard error, of which `initial` steps are done.

  With `stays`, it stays visible once it is closed.
  """
  # 80 if the terminal does not say.
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


def say(message: str):
  """Logs a message, above the bar if there is one."""
  with tqdm.external_write_mode(file=sys.stderr):
    logging.info('%s', message)


def warn(message: str):
  """Logs a warning about a fault that the run survives, above the bar if there is one."""
  with tqdm.external_write_mode(file=sys.stderr):
    logging.warning('%s', message)
