"""`metrics.jsonl`, which survives kills, full disks and damage."""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformer import files


class MetricsFile:
  """A JSONL file of whole lines, and a queue of lines that could not be written yet."""

  def __init__(
    self, path: Path, step: int, written: Mapping[str, Any], warn: Callable[[str], None]
  ):
    """Opens the file, and removes the lines written after `step`.

    `written` is the value of `written()` at that step, empty for a new run. `warn` logs a fault
    that the run survives.
    """
    self._path = path
    self._warn = warn
    self._warned = False
    self._pending = [line.encode() for line in written.get('unwritten', ())]
    content = path.read_bytes() if path.exists() else b''
    kept = content[: written.get('bytes', 0)]
    if written and hashlib.sha256(kept).hexdigest() != written['sha256']:
      kept = self._mend(content, step)
    self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    self._size = len(kept)
    self._digest = hashlib.sha256(kept)
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
    return {
      'bytes': self._size,
      'sha256': self._digest.hexdigest(),
      'unwritten': [line.decode() for line in self._pending],
    }

  def close(self):
    """Tries to write the queued lines, and closes the file."""
    self._append()
    os.close(self._file)

  def _mend(self, content: bytes, step: int) -> bytes:
    """Copies the damaged file aside, and keeps and returns its readable lines up to `step`."""
    aside = files.unused_name(self._path.with_name(f'{self._path.name}.damaged'))
    files.write(aside, content)
    lines = [
      line
      for line in content.splitlines(keepends=True)
      if (row := _parsed(line)) and row['step'] <= step
    ]
    files.write(self._path, b''.join(lines))
    # A line that could not be written at the checkpoint may have been written after it.
    self._pending = [line for line in self._pending if line not in lines]
    self._warn(
      f'{self._path} is not as it was written up to step {step}: lines are missing, or '
      f'were changed; the readable lines are kept, and {aside.name} is a copy of the '
      f'damaged file; restore {self._path.name} from a copy if its figures matter'
    )
    return b''.join(lines)

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
        self._warn(
          f'{self._path} cannot be written: {error.strerror}; the run goes on, and keeps '
          f'the lines in memory and in checkpoints until they can be written'
        )
      self._warned = True


def read_metrics(path: Path) -> list[dict[str, Any]]:
  """Returns the readable lines of a file of metrics, each with its `step`."""
  lines = path.read_bytes().splitlines(keepends=True) if path.exists() else ()
  return [row for line in lines if (row := _parsed(line))]


def _parsed(line: bytes) -> dict[str, Any] | None:
  """Returns a line of metrics; None if it is incomplete or damaged."""
  with contextlib.suppress(ValueError):
    row = json.loads(line)
    if line.endswith(b'\n') and isinstance(row, dict) and isinstance(row.get('step'), int):
      return row
  return None
