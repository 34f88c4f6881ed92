r"""Lines of UTF-8 text: of files, by number and from the disk, and of streams.

A line ends only at `\n`. U+2028, U+0085, vertical tabs and lone carriage returns are parts of
a sentence. A byte order mark is removed, and the CR of CRLF if all lines end in CRLF. A file whose
name ends in `.gz` or `.zst` is unpacked first.
"""

import contextlib
import difflib
import hashlib
import io
import os
import shutil
import sys
import tempfile
import unicodedata
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import BinaryIO

import numpy as np
from absl import logging

from transformer import files, own_code
from transformer.data.config import DataConfig
from transformer.errors import UserError, shown

STANDARD_INPUT = '-'
_CHUNK = 1 << 24  # bytes read together
_EVERY = 128  # lines from one known offset to the next; a read begins and ends at such offsets
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'
_MOST_ZEROS = 0.4  # share of the bytes; ASCII in UTF-16 is valid UTF-8, and has a half
# Unicode's categories of white space, controls, and marks that need a letter to be seen.
_INVISIBLE = {'Cc', 'Cf', 'Mn', 'Zl', 'Zp', 'Zs'}


def is_blank(line: str) -> bool:
  """Returns whether a line has nothing to read: no character, or invisible ones alone."""
  return all(unicodedata.category(character) in _INVISIBLE for character in line)


def check_several(lines: Sequence[str]):
  """Raises `UserError` for one line, whose letters would count as lines, for a set, and no text."""
  try:
    if isinstance(lines, (str, Set, Mapping)):
      raise TypeError(f'got {shown(lines)}')
    len(''.join(lines).encode()) + len(lines)
  except (TypeError, UnicodeEncodeError) as error:
    raise UserError(
      f"a list of texts is needed, such as ['A line.'], which UTF-8 can hold; {error}"
    ) from error


def read_lines(path: str | os.PathLike) -> list[str]:
  """Returns the lines of a UTF-8 file, or of standard input for `-`; nothing has no lines."""
  if path == STANDARD_INPUT:
    if sys.stdin is None:
      raise UserError('standard input is closed; give it something, or name a file')
    name, data = 'standard input', sys.stdin.buffer.read()
  else:
    name = os.fspath(path)
    with _unpacked(name) or _open(name) as content:
      data = content.read()  # Once, since it may be a pipe.
  text = TextFile(name, data)
  for note in text.notes:
    logging.warning('%s', note)
  return text.read(0, len(text))


def iterate_lines(file: BinaryIO, name: str) -> Iterator[str]:
  """Yields the lines of a UTF-8 stream as they come; the first says whether all end in CRLF."""
  crlf = False
  for number, data in enumerate(file, 1):
    if number == 1:
      data, crlf = data.removeprefix(_BYTE_ORDER_MARK), data.endswith(b'\r\n')
    try:
      yield data.removesuffix(b'\n').removesuffix(b'\r' if crlf else b'').decode('utf-8')
    except UnicodeDecodeError as error:
      raise _not_utf8(name, number, error) from error


class TextFile:
  """The lines of one file by number; the text stays on disk, and must not change.

  Attributes:
    fingerprint: SHA-256 of the lines, each with its line feed, in hexadecimal.
    notes: what is odd: carriage returns within lines, or compressed files that are not read.
  """

  def __init__(self, name: str, data: bytes | BinaryIO | None = None):
    """Reads the whole file once, or its compressed form if there is no file `name`.

    `data` is the content, if that is known, or a temporary file with it, which this closes.
    """
    self.name, self.notes, self._data, self._state = name, (), data, None
    if data is None:
      there = [
        path for ending in ('', *files.PACKED) if files.as_path(path := name + ending).exists()
      ]
      self.name, *others = there or [name]
      self.notes = tuple(f'{self.name} is read, and not {path}; remove one' for path in others)
      self._data = _unpacked(self.name)
    if hasattr(self._data, 'close'):
      weakref.finalize(self, self._data.close)
    with self._opened() as file:
      self._survey(file)

  def __len__(self) -> int:
    return self._lines

  def read(self, start: int, stop: int) -> list[str]:
    """Returns lines `start` to `stop`, both in [0, len]; safe to call from many threads."""
    first, last = start // _EVERY, -(-stop // _EVERY)
    with self._opened() as file:
      file.seek(self._starts[first])
      data = file.read(self._starts[last] - self._starts[first])
    if self._all_crlf:
      data = data.replace(b'\r\n', b'\n')
    return data.decode('utf-8').split('\n')[start - first * _EVERY : stop - first * _EVERY]

  def _survey(self, file: BinaryIO):
    """Finds the lines of a file, a chunk at a time."""
    if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
      file.seek(0)
    as_it_is, without_carriages = hashlib.sha256(), hashlib.sha256()
    lines, counts, starts, offset = 0, np.zeros(3, np.int64), [], file.tell()
    # Chunks end at line ends, which are never inside a character or a CRLF.
    while chunk := file.read(_CHUNK) + file.readline():
      try:
        chunk.decode('utf-8')
      except UnicodeDecodeError as error:
        raise _not_utf8(self.name, lines + chunk.count(b'\n', 0, error.start) + 1, error) from error
      if chunk.count(0) > _MOST_ZEROS * len(chunk):
        raise UserError(
          f'{self.name} must be UTF-8; it is full of zeros, as UTF-16 is; convert '
          f'it, such as with iconv -f UTF-16LE -t UTF-8'
        )
      counts += [chunk.count(mark) for mark in (b'\n', b'\r\n', b'\r')]
      end = b'' if chunk.endswith(b'\n') else b'\n'  # The last line may have none.
      as_it_is.update(chunk + end)
      without_carriages.update(chunk.replace(b'\r\n', b'\n') + end)
      ends = np.flatnonzero(np.frombuffer(chunk + end, np.uint8) == ord('\n')) + 1
      begins = np.concatenate([[0], ends[:-1]])
      starts.append(begins[-lines % _EVERY :: _EVERY] + offset)
      lines, offset = lines + len(begins), offset + len(chunk)
    feeds, crlf, carriages = counts.tolist()
    # A program that writes CRLF does so in all lines; otherwise a CR may be a part of the text.
    self._all_crlf = 0 < feeds == crlf
    self._lines, self._starts = lines, np.concatenate([*starts, [offset]])
    self.fingerprint = (without_carriages if self._all_crlf else as_it_is).hexdigest()
    kept = carriages - crlf * self._all_crlf
    self.notes += (
      (
        f'{self.name}: {kept} carriage returns are parts of its {lines} lines; '
        f"sed 's/\\r$//' removes those at the ends; if CR ends a line, convert the file "
        f"with tr '\\r' '\\n'",
      )
      if kept
      else ()
    )

  @contextlib.contextmanager
  def _opened(self) -> Iterator[BinaryIO]:
    """Opens the file, which must be the one that was opened first."""
    if isinstance(self._data, bytes):
      yield io.BytesIO(self._data)
      return
    with reopened(self._data) if self._data else _open(self.name) as file:
      about = os.fstat(file.fileno())
      state = about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino
      self._state = self._state or state
      if state != self._state:
        raise UserError(f'{self.name} was changed while it was being read; start again')
      yield file


class TextCorpus:
  """Two line-aligned UTF-8 files, `{dir}/{split}.{language}`, of so many `lines`."""

  def __init__(self, config: DataConfig, split: str, *, aligned: bool = True):
    """Opens the files; if they need not be `aligned`, the corpus ends with the shorter one."""
    self.name = str(Path(config.dir) / split)
    self.folder = files.as_path(self.name).parent
    self._files = source, target = self.sides(config.source_language, config.target_language)
    self.lines, self.notes = (len(source), len(target)), source.notes + target.notes
    if aligned and len(source) != len(target):
      raise UserError(
        '; '.join(
          (
            f'source and target must have the same number of lines; {source.name} has '
            f'{len(source)} lines, {target.name} has {len(target)}',
            *self.notes,
          )
        )
      )
    self.fingerprint = hashlib.sha256(
      (source.fingerprint + target.fingerprint).encode()
    ).hexdigest()

  def sides(self, *languages: str) -> list[TextFile]:
    """Returns the lines of the source and of the target; a subclass may have them otherwise."""
    return [TextFile(f'{self.name}.{language}') for language in languages]

  def __len__(self) -> int:
    return min(self.lines)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    start, stop, _ = pairs.indices(len(self))
    return list(zip(*(file.read(start, max(start, stop)) for file in self._files), strict=True))


def reopened(file: BinaryIO) -> BinaryIO:
  """Opens a temporary file, which has no name, once more; it is there until all are closed."""
  file.flush()
  return open(f'/dev/fd/{file.fileno()}', 'rb')


def _unpacked(name: str) -> BinaryIO | None:
  """Returns a temporary file with the content of a compressed one; None for other files."""
  if not (unpack := files.packer(name, 'open')):
    return None
  failure = f'{name} cannot be unpacked; get the file again if it is damaged'
  with _open(name) as file, own_code.guarded(failure), tempfile.TemporaryFile() as content:
    shutil.copyfileobj(unpack(file), content, _CHUNK)
    return reopened(content)


def _open(path: str | os.PathLike) -> BinaryIO:
  """Opens a file for reading, or raises a `UserError` that says what lies there."""
  path = files.as_path(path)
  try:
    return path.open('rb')
  except OSError as error:
    names = [file.name for file in path.parent.glob('*')]
    nearest = ', '.join(difflib.get_close_matches(path.name, names, n=5, cutoff=0)) or 'no files'
    there = (
      f'{path.parent} holds {nearest}'
      if path.parent.is_dir()
      else f'there is no folder {path.parent}'
    )
    raise UserError(f'wanted the file {path}; {error.strerror}; {there}') from error


def _not_utf8(name: str, line: int, error: UnicodeDecodeError) -> UserError:
  return UserError(
    f'{name} must be UTF-8; line {line} is not, at the byte '
    f'0x{error.object[error.start]:02x}; if it is compressed, its name must end in '
    f'.gz or .zst; else convert it, such as with iconv -f UTF-16 -t UTF-8'
  )
