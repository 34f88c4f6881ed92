r"""Lines of UTF-8 files, read from the disk by number.

A line ends only at `\n`. U+2028, U+0085, vertical tabs and lone carriage returns are parts of
a sentence.
"""

import contextlib
import dataclasses
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from absl import logging

from transformer.data.text.wrong_files import HEAD, not_utf8, refuse_utf16, what_is_there
from transformer.errors import UserError

STANDARD_INPUT = '-'
_CHUNK = 1 << 24  # bytes read together
_EVERY = 128  # lines from one known offset to the next; a read begins and ends at such offsets
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'


def read_lines(path: str | os.PathLike) -> list[str]:
  """Returns the lines of a UTF-8 file; an empty file has none.

  Args:
    path: a file, or `-` for standard input.

  Raises:
    UserError: the file is missing, unreadable or not UTF-8, or standard input is closed.
  """
  if path == STANDARD_INPUT:
    if sys.stdin is None:
      raise UserError('standard input is closed; give it something, or name a file')
    name, data = 'standard input', sys.stdin.buffer.read()
  else:
    name = os.fspath(path)
    with _opened(path) as file:
      data = file.read()
  survey = _survey(io.BytesIO(data), name)
  for note in survey.notes(name):
    logging.warning('%s', note)
  return survey.read(io.BytesIO(data), 0, survey.lines)


def iterate_lines(file: BinaryIO, name: str) -> Iterator[str]:
  """Yields the lines of a UTF-8 stream as they come.

  Removes a byte order mark, and the CR of every CRLF if the first line ends in CRLF.

  Raises:
    UserError: a line is not UTF-8.
  """
  crlf, head = False, b''
  for number, data in enumerate(file, 1):
    if number == 1:
      head = data[:HEAD]
      refuse_utf16(name, head)
      data, crlf = data.removeprefix(_BYTE_ORDER_MARK), data.endswith(b'\r\n')
    try:
      yield data.removesuffix(b'\n').removesuffix(b'\r' if crlf else b'').decode('utf-8')
    except UnicodeDecodeError as error:
      raise UserError(not_utf8(name, number, data[error.start], head)) from error


class TextFile:
  """The lines of one file by number; the text stays on disk.

  Attributes:
    name: the path that the user gave.
    fingerprint: SHA-256 of the lines, in hexadecimal.
    notes: sentences about what was changed while reading, and about what looks odd.
  """

  def __init__(self, path: str):
    """Reads the whole file once, to find its lines.

    Raises:
      UserError: the file is missing, unreadable or not UTF-8.
    """
    self.name = path
    with _opened(path) as file:
      self._state = _state(file)
      self._survey = _survey(file, path)
      self._check_unchanged(file)
    self.fingerprint = self._survey.fingerprint
    self.notes = self._survey.notes(path)

  def __len__(self) -> int:
    return self._survey.lines

  def read(self, start: int, stop: int) -> list[str]:
    """Returns lines `start` to `stop`, both in [0, len]; safe to call from many threads.

    Raises:
      UserError: the file has changed since it was opened.
    """
    with _opened(self.name) as file:
      self._check_unchanged(file)
      return self._survey.read(file, start, stop)

  def _check_unchanged(self, file: BinaryIO):
    if _state(file) != self._state:
      raise UserError(f'{self.name} was changed while it was being read; start again')


@dataclasses.dataclass(frozen=True)
class _Survey:
  """What one pass over a file finds.

  Attributes:
    fingerprint: SHA-256 of the lines, each with its line feed, in hexadecimal.
    lines: the number of lines.
    ends: the number of line ends; the last line may have none.
    carriage_ends: the number of lines that end in CRLF.
    lone_carriages: the number of carriage returns that no line feed follows.
    marked: whether the file begins with a byte order mark.
    starts: the offset of every `_EVERY`-th line from the first on, and the file's size.
  """

  fingerprint: str
  lines: int
  ends: int
  carriage_ends: int
  lone_carriages: int
  marked: bool
  starts: np.ndarray

  @property
  def all_crlf(self) -> bool:
    # A file that was written with CRLF line ends has them in all lines. Otherwise a carriage
    # return may be a part of the text.
    return 0 < self.ends == self.carriage_ends

  def notes(self, name: str) -> tuple[str, ...]:
    """Returns sentences about what was changed while reading, and about what looks odd."""
    notes = []
    if self.marked:
      notes.append(f'{name}: it began with a byte order mark; the mark was removed')
    if self.all_crlf:
      notes.append(f'{name}: all {self.ends} lines ended in CRLF; the CR was removed')
    elif self.carriage_ends:
      notes.append(f'{name}: {self.carriage_ends} of {self.ends} lines ended in CRLF; the CR was '
                   "kept as a part of those sentences; sed 's/\\r$//' removes it")
    if self.lone_carriages and self.lone_carriages >= self.lines:
      notes.append(f'{name}: only LF ends a line, so {self.lone_carriages} CR are in {self.lines} '
                   "lines; if CR ends a line, convert the file with tr '\\r' '\\n'")
    return tuple(notes)

  def read(self, file: BinaryIO, start: int, stop: int) -> list[str]:
    """Returns lines `start` to `stop` of the file."""
    first, last = start // _EVERY, -(-stop // _EVERY)
    file.seek(self.starts[first])
    data = file.read(self.starts[last] - self.starts[first])
    if self.all_crlf:
      data = data.replace(b'\r\n', b'\n')
    return data.decode('utf-8').split('\n')[start - first * _EVERY:stop - first * _EVERY]


def _survey(file: BinaryIO, name: str) -> _Survey:
  """Surveys a file, a chunk at a time.

  Raises:
    UserError: the file is not UTF-8.
  """
  as_it_is, without_carriages = hashlib.sha256(), hashlib.sha256()
  lines = ends = carriage_ends = lone_carriages = offset = 0
  marked, starts, head = False, [], b''
  # Chunks end at line ends, which are never inside a character or a CRLF.
  while chunk := file.read(_CHUNK) + file.readline():
    if not head:
      head = chunk[:HEAD]
      refuse_utf16(name, head)
    if not offset and chunk.startswith(_BYTE_ORDER_MARK):
      marked, offset = True, len(_BYTE_ORDER_MARK)
      chunk = chunk[offset:]
    try:
      chunk.decode('utf-8')
    except UnicodeDecodeError as error:
      line = lines + chunk.count(b'\n', 0, error.start) + 1
      raise UserError(not_utf8(name, line, chunk[error.start], head)) from error
    feeds = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord('\n')) + 1
    begin = np.concatenate([[0], feeds])
    begin = begin[begin < len(chunk)]
    starts.append(begin[-lines % _EVERY::_EVERY] + offset)
    lines, ends = lines + len(begin), ends + len(feeds)
    offset += len(chunk)
    carriage_ends += (pairs := chunk.count(b'\r\n'))
    lone_carriages += chunk.count(b'\r') - pairs
    # Completes the last line if it has no line end.
    feed = b'' if len(begin) == len(feeds) else b'\n'
    as_it_is.update(chunk + feed)
    if ends == carriage_ends:
      without_carriages.update(chunk.replace(b'\r\n', b'\n') + feed)
  survey = _Survey('', lines, ends, carriage_ends, lone_carriages, marked,
                   np.concatenate([*starts, [offset]]))
  digest = without_carriages if survey.all_crlf else as_it_is
  return dataclasses.replace(survey, fingerprint=digest.hexdigest())


def _state(file: BinaryIO) -> tuple[int, ...]:
  """Returns the size, times and inode of a file; one of them differs after a change.

  A copy may keep the time of modification, but nothing keeps the time of the inode's change.
  """
  status = os.fstat(file.fileno())
  return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a file for reading, or raises a `UserError` that says why not."""
  path = Path(os.path.expanduser(path))  # An unknown user's `~NAME` stays as it is.
  try:
    with path.open('rb') as file:
      yield file
  except (FileNotFoundError, NotADirectoryError) as error:
    raise UserError(f'wanted the file {path}; {what_is_there(path)}') from error
  except OSError as error:
    raise UserError(f'the file {path} cannot be read: {error.strerror}') from error
