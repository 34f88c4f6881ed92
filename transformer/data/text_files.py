r"""Lines of UTF-8 files: read where they lie, and their digest remembered.

A line of text ends at `\n` and nowhere else: U+2028, U+0085, vertical tabs and
lone carriage returns belong to the sentence that they stand in.
"""

import contextlib
import dataclasses
import difflib
import hashlib
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from absl import logging

from transformer import files
from transformer.errors import UserError

STANDARD_INPUT = '-'
_FORMAT = 1
_CHUNK = 1 << 24  # bytes looked at together
_EVERY = 128  # lines between two whose place is known, and the fewest that are read
_REMEMBERED = 1 << 24  # bytes from which a file is large enough to be remembered
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'
_NAMES_SHOWN = 5


def read_lines(path: str | os.PathLike) -> list[str]:
  """Returns the lines of a UTF-8 file; an empty file has none.

  Args:
    path: a file, or `-` for standard input.

  Raises:
    UserError: the file is missing, unreadable or not UTF-8.
  """
  if path == STANDARD_INPUT:
    name, data = 'standard input', sys.stdin.buffer.read()
  else:
    name = os.fspath(path)
    with _opened(path) as file:
      data = file.read()
  survey = _survey(io.BytesIO(data), name)
  for note in survey.notes(name):
    logging.info('%s', note)
  return survey.read(io.BytesIO(data), 0, survey.lines)


def iterate_lines(file: BinaryIO, name: str) -> Iterator[str]:
  """Yields the lines of UTF-8 as they come, of what cannot be looked at as a whole.

  A byte order mark is removed; and the CR of every CRLF, if the first line ends in one.

  Raises:
    UserError: a line is not UTF-8.
  """
  crlf = False
  for number, data in enumerate(file, 1):
    if number == 1:
      data, crlf = data.removeprefix(_BYTE_ORDER_MARK), data.endswith(b'\r\n')
    try:
      yield data.removesuffix(b'\n').removesuffix(b'\r' if crlf else b'').decode('utf-8')
    except UnicodeDecodeError as error:
      raise UserError(_not_utf8(name, number, data[error.start])) from error


class TextFile:
  """The lines of one file, by their numbers; the text stays on disk.

  Attributes:
    name: the file, as the user calls it.
    fingerprint: SHA-256, in hexadecimal, of the lines.
    notes: what was changed or looked odd on reading, a sentence each.
  """

  def __init__(self, path: str, records: Path):
    """Looks at all of the file, unless it is large and a record of that is there.

    Args:
      path: the file.
      records: the folder where such a record is kept; it need not be there.

    Raises:
      UserError: the file is missing, unreadable or not UTF-8.
    """
    self.name = path
    with _opened(path) as file:
      self._state = _state(file)
      if self._state['bytes'] < _REMEMBERED:
        survey = _survey(file, path)
      else:
        survey = _remembered(records / f'{Path(path).name}.lines.json', file, path)
      self._check_unchanged(file)
    self._survey = survey
    self.fingerprint = survey.fingerprint
    self.notes = survey.notes(path)

  def __len__(self) -> int:
    return self._survey.lines

  def read(self, start: int, stop: int) -> list[str]:
    """Lines `start` to `stop`, which lie in [0, len]; safe to call from many threads.

    Raises:
      UserError: the file is not as it was when it was opened.
    """
    with _opened(self.name) as file:
      self._check_unchanged(file)
      return self._survey.read(file, start, stop)

  def _check_unchanged(self, file: BinaryIO):
    if _state(file) != self._state:
      raise UserError(f'{self.name} was changed while it was being read; start again')


@dataclasses.dataclass(frozen=True)
class _Survey:
  """What a look at all of a file tells.

  Attributes:
    fingerprint: SHA-256, in hexadecimal, of the lines, each with its line feed.
    lines: how many there are.
    ends: how many of them end, as all do but the last, which may not.
    carriage_ends: how many end in CRLF.
    marked: whether a byte order mark precedes the first.
    starts: the offset of every `_EVERY`-th line, from the first on, and the
      file's size.
  """

  fingerprint: str
  lines: int
  ends: int
  carriage_ends: int
  marked: bool
  starts: np.ndarray

  @property
  def all_crlf(self) -> bool:
    # Only a file that does so throughout was written with such line ends; in any
    # other the carriage return may be part of the text.
    return 0 < self.ends == self.carriage_ends

  def notes(self, name: str) -> tuple[str, ...]:
    """What was changed or looked odd, a sentence each."""
    notes = []
    if self.marked:
      notes.append(f'{name}: it began with a byte order mark; the mark was removed')
    if self.all_crlf:
      notes.append(f'{name}: all {self.ends} lines ended in CRLF; the CR was removed')
    elif self.carriage_ends:
      notes.append(f'{name}: {self.carriage_ends} of {self.ends} lines ended in CRLF; the CR was '
                   'kept as a part of those sentences')
    return tuple(notes)

  def read(self, file: BinaryIO, start: int, stop: int) -> list[str]:
    """Lines `start` to `stop` of the file that this is of."""
    first, last = start // _EVERY, -(-stop // _EVERY)
    file.seek(self.starts[first])
    data = file.read(self.starts[last] - self.starts[first])
    if self.all_crlf:
      data = data.replace(b'\r\n', b'\n')
    return data.decode('utf-8').split('\n')[start - first * _EVERY:stop - first * _EVERY]


def _survey(file: BinaryIO, name: str) -> _Survey:
  """Looks at all of a file, a chunk at a time.

  Raises:
    UserError: it is not UTF-8.
  """
  as_it_is, without_carriages = hashlib.sha256(), hashlib.sha256()
  lines = ends = carriage_ends = offset = 0
  marked, starts = False, []
  # Cut at line ends, which are never inside a character, nor after the CR of a CRLF.
  while chunk := file.read(_CHUNK) + file.readline():
    if not offset and chunk.startswith(_BYTE_ORDER_MARK):
      marked, offset = True, len(_BYTE_ORDER_MARK)
      chunk = chunk[offset:]
    try:
      chunk.decode('utf-8')
    except UnicodeDecodeError as error:
      line = lines + chunk.count(b'\n', 0, error.start) + 1
      raise UserError(_not_utf8(name, line, chunk[error.start])) from error
    found = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord('\n')) + 1
    begin = np.concatenate([[0], found])
    begin = begin[begin < len(chunk)]
    starts.append(begin[-lines % _EVERY::_EVERY] + offset)
    lines, ends = lines + len(begin), ends + len(found)
    offset += len(chunk)
    carriage_ends += chunk.count(b'\r\n')
    # For the last line, which may not end.
    feed = b'' if len(begin) == len(found) else b'\n'
    as_it_is.update(chunk + feed)
    if ends == carriage_ends:
      without_carriages.update(chunk.replace(b'\r\n', b'\n') + feed)
  survey = _Survey('', lines, ends, carriage_ends, marked, np.concatenate([*starts, [offset]]))
  digest = without_carriages if survey.all_crlf else as_it_is
  return dataclasses.replace(survey, fingerprint=digest.hexdigest())


def _not_utf8(name: str, line: int, byte: int) -> str:
  return f'{name} must be UTF-8; line {line} is not, at the byte 0x{byte:02x}; convert the file'


def _remembered(record: Path, file: BinaryIO, name: str) -> _Survey:
  """Does what `_survey` does, but only once for each state that a file is in.

  Several processes may do so at once: each writes the same, and the last stays.
  A record that is damaged is as if it were not there.
  """
  state = _state(file)
  with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
    written = json.loads(record.read_text(encoding='utf-8'))
    if (written['crc32'] == _checksum(written['survey']) and written['file'] == state
        and written['format'] == [_FORMAT, _EVERY]):
      fields = written['survey']
      return _Survey(**{**fields, 'starts': np.array(fields['starts'], np.int64)})
  logging.info('reading all of %s, once', name)
  survey = _survey(file, name)
  if _state(file) == state:
    fields = {**dataclasses.asdict(survey), 'starts': survey.starts.tolist()}
    try:
      files.write(record, json.dumps({'format': [_FORMAT, _EVERY], 'file': state,
                                      'crc32': _checksum(fields), 'survey': fields}).encode())
    except UserError as error:
      logging.warning('%s is read whole at every start: %s', name, error)
  return survey


def _checksum(fields) -> int:
  return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


def _state(file: BinaryIO) -> dict[str, int]:
  """What changes when a file does."""
  found = os.fstat(file.fileno())
  return {'bytes': found.st_size, 'mtime_ns': found.st_mtime_ns, 'inode': found.st_ino}


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a file to read it; says in one line why that cannot be done."""
  path = Path(os.path.expanduser(path))  # Which leaves the name of no user as it is.
  try:
    with path.open('rb') as file:
      yield file
  except (FileNotFoundError, NotADirectoryError) as error:
    raise UserError(f'wanted the file {path}; {_what_is_there(path)}') from error
  except OSError as error:
    raise UserError(f'the file {path} cannot be read: {error.strerror}') from error


def _what_is_there(path: Path) -> str:
  """Says what lies where `path` was looked for, the likeliest names first."""
  folder = path.parent
  if not folder.is_dir():
    return f'there is no folder {folder}'
  names = [entry.name for entry in folder.iterdir() if entry.is_file()]
  if not names:
    return f'there are no files in {folder}'
  nearest = difflib.get_close_matches(path.name, sorted(names), n=_NAMES_SHOWN, cutoff=0)
  others = len(names) - len(nearest)
  return f'{folder} holds {", ".join(nearest)}' + (f' and {others} others' if others else '')
