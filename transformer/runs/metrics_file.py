"""`metrics.jsonl`, which survives kills and full disks."""

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

from transformer.errors import UserError


class MetricsFile:
  """A JSONL file of whole lines."""

  def __init__(self, path: Path, written: Mapping[str, int]):
    """Opens the file, and removes the lines after `written()` of an earlier process."""
    self._path = path
    content = path.read_bytes() if path.exists() else b''
    # Somebody may have shortened the file.
    self._size = content[: written.get('bytes', 0)].rfind(b'\n') + 1
    self._file = path.open('ab', buffering=0)
    self._file.truncate(self._size)

  def write(self, line: str):
    """Adds a line; raises `UserError`, and writes no part of it, if that is not possible."""
    content = line.encode()
    try:
      if self._file.write(content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
      with contextlib.suppress(OSError):
        self._file.truncate(self._size)
      raise UserError(
        f'{self._path} cannot be written: {error.strerror}; free disk space or allow writing '
        f'there, then start again, and the run goes on from its last checkpoint'
      ) from error
    self._size += len(content)

  def written(self) -> dict[str, int]:
    """Returns, for a later process, how much is written and on the disk, as JSON data."""
    os.fsync(self._file.fileno())
    return {'bytes': self._size}

  def close(self):
    """Closes the file."""
    self._file.close()


def read_metrics(path: Path) -> list[dict]:
  """Returns the readable lines of a file of metrics, each with its `step`."""
  rows = []
  for line in path.read_bytes().splitlines() if path.exists() else ():
    with contextlib.suppress(ValueError):  # A line may be incomplete, or damaged.
      row = json.loads(line)
      if isinstance(row, dict) and 'step' in row:
        rows.append(row)
  return rows
