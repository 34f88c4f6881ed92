"""The file of metrics, which only ever holds whole lines."""

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Lines:
  """A JSONL file that only ever holds whole lines, and the lines that wait to be in it."""

  def __init__(self, path: Path, step: int, written: Mapping[str, Any],
               warn: Callable[[str], None]):
    """Opens the file, and cuts off what was written after `step`.

    Args:
      path: the file; it need not exist.
      step: the step that the run goes on from.
      written: what `written` said at that step, or empty.
      warn: tells people of a fault that the run survives.
    """
    self._path, self._warn, self._warned = path, warn, False
    self._pending = [line.encode() for line in written.get('unwritten', ())]
    self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
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
    """What the file holds by now, and the lines that could not be written so far, as JSON data."""
    with contextlib.suppress(OSError):
      os.fsync(self._file)
    return {'bytes': self._size, 'sha256': self._digest.hexdigest(),
            'unwritten': [line.decode() for line in self._pending]}

  def close(self):
    """Tries to write what is left, and closes the file."""
    self._append()
    os.close(self._file)

  def _mend(self, step: int):
    """Goes on with the lines up to a step that can be read, and leaves a copy of all there was."""
    found = self._path.read_bytes()
    aside = self._path.with_name(f'{self._path.name}.damaged')
    aside.write_bytes(found)
    lines = [line for line in found.splitlines(keepends=True) if _step(line) <= step]
    os.ftruncate(self._file, 0)
    os.write(self._file, b''.join(lines))
    self._size, self._digest = sum(map(len, lines)), hashlib.sha256(b''.join(lines))
    self._warn(f'{self._path} is not as it was written up to step {step}: lines are missing, or '
               f'were changed; it goes on with those that can be read, and {aside.name} holds what '
               f'was found; restore it from a copy if its figures matter')

  def _append(self):
    """Writes what is pending; of a line that does not fit, nothing stays in the file."""
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
                   f'its lines, in checkpoints too, until they can be')
      self._warned = True


def _step(line: bytes) -> float:
  """The step of a line of metrics; infinity if it is none."""
  try:
    return float(json.loads(line)['step']) if line.endswith(b'\n') else math.inf
  except (ValueError, KeyError, TypeError):
    return math.inf
