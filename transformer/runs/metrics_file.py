"""`metrics.jsonl`, which holds only whole lines even after kills and on full disks."""

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

from transformer.errors import UserError


class MetricsFile:
  """An append-only JSONL file of whole lines."""

  def __init__(self, path: Path, position: Mapping[str, int]):
    """Opens a file, and removes all lines after the `position` of an earlier process."""
    self._path = path
    content = path.read_bytes() if path.exists() else b''
    # The file may have been shortened by hand.
    self._size = content[: position.get('bytes', 0)].rfind(b'\n') + 1
    self._file = path.open('ab', buffering=0)
    self._file.truncate(self._size)

  def write(self, line: str):
    """Appends a line; if that fails, removes any part of it and raises `UserError`."""
    content = line.encode()
    try:
      if self._file.write(content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
      with contextlib.suppress(OSError):
        self._file.truncate(self._size)
      raise UserError(
        f'{self._path} cannot be written: {error.strerror}; free disk space or fix permissions, '
        'then rerun to resume from the last checkpoint'
      ) from error
    self._size += len(content)

  def flush(self) -> dict[str, int]:
    """Flushes the file to disk; returns its size, as JSON data, for a later process."""
    os.fsync(self._file.fileno())
    return {'bytes': self._size}

  def close(self):
    """Closes the file."""
    self._file.close()


def read_metrics(path: Path) -> list[dict]:
  """Returns the valid lines of a metrics file as dicts, each with its `step`."""
  rows = []
  for line in path.read_bytes().splitlines() if path.exists() else ():
    with contextlib.suppress(ValueError):  # A line may be incomplete or corrupt.
      row = json.loads(line)
      if isinstance(row, dict) and 'step' in row:
        rows.append(row)
  return rows
