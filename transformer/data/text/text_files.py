r"""Lines of UTF-8 text: of files on disk, by index, and of streams.

A line ends only at `\n` or `\r\n`. U+2028, U+0085, vertical tabs and lone carriage returns are
parts of a sentence. A byte order mark is removed. A file whose name ends in `.gz` is decompressed
first.
"""

import difflib
import gzip
import hashlib
import itertools
import os
import shutil
import sys
import tempfile
import unicodedata
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import BinaryIO

from transformer import files, plugins
from transformer.data.config import DataConfig
from transformer.errors import UserError, short_repr

STANDARD_INPUT = '-'
# Lines per stored file offset; a read starts and stops at stored offsets.
_EVERY = 128
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'
_MAX_ZEROS = 0.4  # fraction of bytes; ASCII in UTF-16 is valid UTF-8, half of it zeros
# Unicode categories of whitespace, control and format characters, and combining marks.
_INVISIBLE = {'Cc', 'Cf', 'Mn', 'Zl', 'Zp', 'Zs'}


def is_blank(line: str) -> bool:
  """Returns whether a line is empty or has only invisible characters."""
  return all(unicodedata.category(character) in _INVISIBLE for character in line)


def check_lines(lines: Sequence[str]):
  """Raises `UserError` unless `lines` is a sequence (not one string) of texts that UTF-8 holds."""
  try:
    if isinstance(lines, (str, Set, Mapping)):
      raise TypeError(f'got {short_repr(lines)}')
    len(''.join(lines).encode()) + len(lines)
  except (TypeError, UnicodeEncodeError) as error:
    raise UserError(
      f"expected a list of lines, such as ['A line.'], that UTF-8 can encode; {error}"
    ) from error


def read_lines(path: files.StrPath) -> list[str]:
  """Returns the lines of a UTF-8 file, or of standard input for `-`; an empty file has no lines."""
  if path != STANDARD_INPUT:
    with _open(path) as file:
      return list(iterate_lines(file, str(path)))
  if sys.stdin is None:
    raise UserError('standard input is closed; pipe text into it, or pass a file')
  return list(iterate_lines(sys.stdin.buffer, 'standard input'))


def iterate_lines(file: BinaryIO, name: str) -> Iterator[str]:
  """Yields the lines of a UTF-8 stream as they arrive."""
  for line_number, data in enumerate(file, 1):
    if line_number == 1:
      data = data.removeprefix(_BYTE_ORDER_MARK)
    line = _decoded(data, name, line_number)
    if line:  # Empty if the file holds only a byte order mark.
      yield line.removesuffix('\r\n').removesuffix('\n')


class TextFile:
  """The lines of one file, by index; the text stays on disk, and must not change.

  Attributes:
    fingerprint: SHA-256 of the lines, each with its line feed, in hexadecimal.
    notes: warnings about the text: carriage returns within lines.
  """

  def __init__(self, name: str, file: BinaryIO | None = None):
    """Scans the whole file `name` once, or `{name}.gz` if there is no file `name`.

    `file` is an open file to scan instead; it is closed when this object is freed.
    """
    if file is None:
      forms = (name, f'{name}.gz')
      name = next((form for form in forms if files.as_path(form).exists()), name)
      file = _open(name)
    self.name = name
    self.notes = ()
    self._file = file
    weakref.finalize(self, file.close)
    self._state = self._current_state()
    self._survey()

  def __len__(self) -> int:
    return self._lines

  def read(self, start: int, stop: int) -> list[str]:
    """Returns lines `start` … `stop − 1`; both bounds are in [0, len]. Thread-safe."""
    group = start // _EVERY
    first = self._starts[group]
    last = self._starts[-(-stop // _EVERY)]
    data = os.pread(self._file.fileno(), last - first, first)
    if self._current_state() != self._state:
      raise UserError(f'{self.name} was changed while it was being read; start again')
    lines = data.replace(b'\r\n', b'\n').decode().split('\n')
    return lines[start - group * _EVERY : stop - group * _EVERY]

  def _current_state(self) -> tuple[int, ...]:
    stat = os.fstat(self._file.fileno())
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

  def _survey(self):
    """Checks, hashes and indexes the lines of the file, a group at a time."""
    file = self._file
    if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
      file.seek(0)
    digest = hashlib.sha256()
    carriages = 0
    self._lines = 0
    self._starts = [file.tell()]
    while group := list(itertools.islice(file, _EVERY)):
      data = b''.join(group)
      _decoded(data, self.name, self._lines + 1)
      if data.count(0) > _MAX_ZEROS * len(data):
        raise UserError(
          f'{self.name} must be UTF-8; it is full of zero bytes, as UTF-16 is; convert it, for '
          'example with iconv -f UTF-16LE -t UTF-8'
        )
      text = data.replace(b'\r\n', b'\n')
      # The last line may have no line feed.
      digest.update(text if text.endswith(b'\n') else text + b'\n')
      carriages += text.count(b'\r')
      self._lines += len(group)
      self._starts.append(file.tell())
    self.fingerprint = digest.hexdigest()
    if carriages:
      self.notes = (
        f'{self.name}: its {self._lines} lines contain {carriages} carriage returns; if CR ends '
        "a line, convert the file with tr '\\r' '\\n'",
      )


class TextCorpus:
  """Two line-aligned UTF-8 files, `{dir}/{split}.{language}`; `lines` are their line counts."""

  def __init__(self, config: DataConfig, split: str, *, aligned: bool = True):
    """Opens the files; if not `aligned`, lengths may differ, and the shorter one counts."""
    self.name = str(Path(config.dir) / split)
    self.folder = files.as_path(self.name).parent
    self._files = self.sides(config.source_language, config.target_language)
    source, target = self._files
    self.lines = (len(source), len(target))
    self.notes = source.notes + target.notes
    if aligned and len(source) != len(target):
      unequal = (
        f'source and target must have the same number of lines; {source.name} has '
        f'{len(source)} lines, {target.name} has {len(target)}'
      )
      raise UserError('; '.join((unequal, *self.notes)))
    fingerprints = source.fingerprint + target.fingerprint
    self.fingerprint = hashlib.sha256(fingerprints.encode()).hexdigest()

  def sides(self, *languages: str) -> list[TextFile]:
    """Returns the lines of the source and of the target; a subclass may read other files."""
    return [TextFile(f'{self.name}.{language}') for language in languages]

  def __len__(self) -> int:
    return min(self.lines)

  def __getitem__(self, pairs: slice) -> list[tuple]:
    start, stop, _ = pairs.indices(len(self))
    return list(
      zip(*(file.read(start, max(start, stop)) for file in self._files), strict=True)
    )


def reopened(file: BinaryIO) -> BinaryIO:
  """Reopens an unnamed temporary file, which exists until all its handles are closed."""
  file.flush()
  return open(f'/dev/fd/{file.fileno()}', 'rb')


def _open(name: files.StrPath) -> BinaryIO:
  """Opens a file; for a compressed file, a temporary file with the decompressed content.

  Raises `UserError`, with similar names in the folder, if the file cannot be opened.
  """
  path = files.as_path(name)
  try:
    file = path.open('rb')
  except OSError as error:
    hint = f'there is no folder {path.parent}'
    if path.parent.is_dir():
      names = [entry.name for entry in path.parent.glob('*')]
      nearest = difflib.get_close_matches(path.name, names, n=5, cutoff=0)
      hint = f'{path.parent} contains {", ".join(nearest) or "no files"}'
    raise UserError(f'{path} cannot be opened: {error.strerror}; {hint}') from error
  if path.suffix.lower() != '.gz':
    return file
  with (
    plugins.as_user_error(
      f'{name} cannot be decompressed; if it is damaged, restore it from a copy'
    ),
    gzip.open(file) as text,
    file,
    tempfile.TemporaryFile() as content,
  ):
    shutil.copyfileobj(text, content)
    return reopened(content)


def _decoded(data: bytes, name: str, first: int) -> str:
  """Returns consecutive lines of a file as text; `first` is the number of the first line."""
  try:
    return data.decode()
  except UnicodeDecodeError as error:
    line = first + data.count(b'\n', 0, error.start)
    raise UserError(
      f'{name} must be UTF-8; line {line} is not, at the byte 0x{data[error.start]:02x}; if it '
      'is compressed, its name must end in .gz; else convert it, for example with iconv -f '
      'UTF-16 -t UTF-8'
    ) from error
