"""The JSON file of measurements: finished sections, and sections left for another call."""

import json
import os
from pathlib import Path
from typing import Any

from transformer import files
from transformer.errors import UserError


class ResultsFile:
  """Measurements by section; every change is written to disk before the next measurement.

  Attributes:
    sections: for each measured section its `rows`; its `error`, or None; its `seconds`; and
      the machine, the versions, the commit and the time, as text.
  """

  def __init__(self, path: str | os.PathLike, size: str):
    """Reads the file, or creates it.

    Args:
      path: the file.
      size: `full` or `toy`.

    Raises:
      UserError: the file has other content, or measurements of another size.
    """
    self._path, self._size = Path(path), size
    self.sections: dict[str, dict[str, Any]] = {}
    if not self._path.exists():
      return
    found = read(path)
    if found['size'] != size:
      raise UserError(
        f'{path} contains measurements of --size={found["size"]}; pass this size, or another '
        '--out'
      )
    self.sections = found['sections']

  def is_done(self, name: str, retry: bool = False) -> bool:
    """Returns whether a section is finished; with `retry`, only if no part of it failed."""
    return name in self.sections and not (retry and failures(self.sections[name]))

  def add(self, name: str, **measured: Any):
    """Writes a section's measurement; it replaces an earlier one with no more good rows."""
    if name in self.sections and _good_rows(measured) < _good_rows(self.sections[name]):
      return
    self.sections[name] = measured
    files.write_json(self._path, {'size': self._size, 'sections': self.sections})


def failures(section: dict[str, Any]) -> int:
  """Returns the number of failed rows of a section, plus one if the section failed."""
  return len(section['rows']) - _good_rows(section) + bool(section['error'])


def _good_rows(section: dict[str, Any]) -> int:
  return sum('error' not in row for row in section['rows'])


def read(path: str | os.PathLike) -> dict[str, Any]:
  """Returns the content of a file of measurements.

  Raises:
    UserError: the file is not a file of measurements.
  """
  try:
    found = json.loads(Path(path).read_text(encoding='utf-8'))
    if {'size', 'sections'} <= found.keys():
      return found
  except (OSError, ValueError, AttributeError) as error:
    raise UserError(
      f'{path} should hold measurements of benchmarks/accelerator.py; it cannot be read: {error}'
    ) from error
  raise UserError(
    f'{path} should hold measurements of benchmarks/accelerator.py; it contains something else'
  )
