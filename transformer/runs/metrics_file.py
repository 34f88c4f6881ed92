"""`metrics.jsonl`, which survives kills, full disks and damage."""

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformer import files


class MetricsFile:
  """A JSONL file of whole lines, and a queue of lines that could not be written yet."""

  def __init__(self, path: Path, step: int, written: Mapping[str, Any],
               warn: Callable[[str], None]):
    """Opens the file, and removes the lines written after `step`.

    Args:
      path: the file; it need not exist.
      written: the value of `written()` at that step; empty for a new run.
      warn: logs a fault that the run survives.
    """
    self._path, self._warn, self._warned = path, warn, False
    self._pending = [line.encode() for line in written.get('unwritten', ())]
    self._file = self._open()
    self._size, self._digest = written.get('bytes', 0), hashlib.sha256()
    with path.open('rb') as file:
      self._digest.update(file.read(self._size))
    if self._size and self._digest.hexdigest() != written['sha256']:
      self._mend(step)
    os.ftruncate(self._file, self._size)
    self._append()

  def write(self, line: str):
    """Adds a line, or keeps it until it can be written."""
    self._pending.append(line.encode())
    self._append()

  def written(self) -> dict[str, Any]:
    """Returns JSON data: the file's `bytes`, its `sha256` and the `unwritten` lines."""
    with contextlib.suppress(OSError):
      os.fsync(self._file)
    return {'bytes': self._size, 'sha256': self._digest.hexdigest(),
            'unwritten': [line.decode() for line in self._pending]}

  def close(self):
    """Tries to write the queued lines, and closes the file."""
    self._append()
    os.close(self._file)

  def _open(self) -> int:
    return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)

  def _mend(self, step: int):
    """Copies the damaged file aside, and keeps its readable lines up to `step`."""
    content = self._path.read_bytes()
    aside = files.unused_name(self._path.with_name(f'{self._path.name}.damaged'))
    files.write(aside, content)
    lines = [line for line in content.splitlines(keepends=True) if _step(line) <= step]
    files.write(self._path, b''.join(lines))
    os.close(self._file)
    self._file = self._open()
    self._size, self._digest = sum(map(len, lines)), hashlib.sha256(b''.join(lines))
    # A line that could not be written at the checkpoint may have been written after it.
    self._pending = [line for line in self._pending if line not in lines]
    self._warn(f'{self._path} is not as it was written up to step {step}: lines are missing, or '
               f'were changed; the readable lines are kept, and {aside.name} is a copy of the '
               f'damaged file; restore {self._path.name} from a copy if its figures matter')

  def _append(self):
    """Writes the queued lines; if a line does not fit, no part of it stays in the file."""
    try:
      while self._pending:
        os.ftruncate(self._file, self._size)
        if os.write(self._file, self._pending[0]) < len(self._pending[0]):
          raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        line = self._pending.pop(0)
        self._digest.update(line)
        self._size += len(line)
      self._warned = False
    except OSError as error:
      with contextlib.suppress(OSError):
        os.ftruncate(self._file, self._size)
      if not self._warned:
        self._warn(f'{self._path} cannot be written: {error.strerror}; the run goes on, and keeps '
                   f'the lines in memory and in checkpoints until they can be written')
      self._warned = True


def last_step(path: Path) -> int:
  """Returns the largest step in a file of metrics; 0 if there is none."""
  lines = path.read_bytes().splitlines(keepends=True) if path.exists() else ()
  return int(max((step for step in map(_step, lines) if math.isfinite(step)), default=0))


def _step(line: bytes) -> float:
  """Returns the step of a line of metrics; infinity if the line cannot be read."""
  try:
    return float(json.loads(line)['step']) if line.endswith(b'\n') else math.inf
  except (ValueError, KeyError, TypeError):
    return math.inf
