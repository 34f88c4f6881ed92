r"""Sentence pairs at random access, from text files or from TensorFlow Datasets.

A line of text ends at `\n` and nowhere else: U+2028, U+0085, vertical tabs and
lone carriage returns belong to the sentence that they stand in.
"""

import difflib
import hashlib
import operator
import os
import sys
from pathlib import Path
from typing import Protocol, SupportsIndex

import numpy as np
from absl import logging

from transformer.data.config import DataConfig
from transformer.errors import UserError

STANDARD_INPUT = '-'
_CHUNK = 1 << 24  # bytes looked at together, so that no second copy of a file is held
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'
_NAMES_SHOWN = 5


class Corpus(Protocol):
  """Sentence pairs by index; safe to read from many threads, and to pickle.

  Attributes:
    name: what people call it, such as `wmt14_translate/de-en:train`.
    fingerprint: SHA-256, in hexadecimal, that changes when the pairs do, for a
      TFDS set as far as its metadata tells, and is the same on every machine.
    notes: what was changed or looked odd on reading, a sentence each.
    folder: where it lies, and what is made of it may be kept.
  """

  name: str
  fingerprint: str
  notes: tuple[str, ...]
  folder: Path

  def __len__(self) -> int:
    """Returns the number of pairs, at least one."""

  def __getitem__(self, index: SupportsIndex) -> tuple[str, str]:
    """Returns the source and the target sentence of a pair in [0, len)."""


def open_corpus(config: DataConfig, split: str) -> Corpus:
  """Opens one corpus of those that `config` names.

  Args:
    config: says where the corpora lie, and which two languages are read.
    split: a TFDS split, such as `train` or `train[:10%]`; for text the prefix
      of `{dir}/{prefix}.{language}`.

  Raises:
    UserError: there is no such corpus, or it cannot be read, or it is empty.
  """
  languages = (config.source_language, config.target_language)
  if config.source == 'text':
    return TextCorpus(Path(config.dir) / split, *languages)
  from transformer.data import tfds_sets  # Whoever has text files needs no TFDS.
  return tfds_sets.open_set(config.name, split, *languages, data_dir=config.dir)


def read_lines(path: str | os.PathLike) -> list[str]:
  """Returns the lines of a UTF-8 file; an empty file has none.

  Args:
    path: a file, or `-` for standard input.

  Raises:
    UserError: the file is missing, unreadable or not UTF-8.
  """
  lines = _Lines(path)
  for note in lines.notes:
    logging.info('%s', note)
  return [lines[index] for index in range(len(lines))]


class TextCorpus:
  """A pair of line-aligned UTF-8 files, kept in memory as bytes; see `Corpus`."""

  def __init__(self, prefix: Path, source_language: str, target_language: str):
    """Reads both files whole.

    Raises:
      UserError: a file is missing or not UTF-8, both are empty, or their
        numbers of lines differ.
    """
    self.name = str(prefix)
    self.folder = prefix.expanduser().parent
    self._source = _Lines(f'{prefix}.{source_language}')
    self._target = _Lines(f'{prefix}.{target_language}')
    if len(self._source) != len(self._target):
      raise UserError(
          f'source and target must have a line for each other; {self._source.name} has '
          f'{len(self._source)} lines, {self._target.name} has {len(self._target)}')
    if not len(self._source):
      raise UserError(f'a corpus must hold at least one pair; {self._source.name} and '
                      f'{self._target.name} are empty')
    digests = (self._source.fingerprint + self._target.fingerprint).encode()
    self.fingerprint = hashlib.sha256(digests).hexdigest()
    self.notes = self._source.notes + self._target.notes

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: SupportsIndex) -> tuple[str, str]:
    return self._source[index], self._target[index]


class _Lines:
  """The lines of one file: its bytes, and where each line ends."""

  def __init__(self, path: str | os.PathLike):
    data = _read_bytes(path)
    self.name = 'standard input' if path == STANDARD_INPUT else os.fspath(path)
    notes = []
    if data.startswith(_BYTE_ORDER_MARK):
      data = data[len(_BYTE_ORDER_MARK):]
      notes.append(f'{self.name}: it began with a byte order mark; the mark was removed')
    ends, carriage_ends = data.count(b'\n'), data.count(b'\r\n')
    # Only a file that does so throughout was written with such line ends; in any
    # other the carriage return may be part of the text.
    if ends and ends == carriage_ends:
      data = data.replace(b'\r\n', b'\n')
      notes.append(f'{self.name}: all {ends} lines ended in CRLF; the CR was removed')
    elif carriage_ends:
      notes.append(f'{self.name}: {carriage_ends} of {ends} lines ended in CRLF; the CR was kept '
                   'as a part of those sentences')
    if data and not data.endswith(b'\n'):
      data += b'\n'
    self.notes = tuple(notes)
    self._data = data
    self._ends = _check_and_find_ends(data, self.name)
    self.fingerprint = hashlib.sha256(data).hexdigest()

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, index: SupportsIndex) -> str:
    index = check_index(index, len(self))
    start = self._ends[index - 1] + 1 if index else 0
    return self._data[start:self._ends[index]].decode('utf-8')


def check_index(index: SupportsIndex, length: int) -> int:
  """Returns `index` as an int.

  Raises:
    IndexError: it is not in [0, length); iteration over a corpus ends by it.
  """
  index = operator.index(index)
  if not 0 <= index < length:
    raise IndexError(f'index must lie in [0, {length}); got {index}')
  return index


def _check_and_find_ends(data: bytes, name: str) -> np.ndarray:
  """Returns the offsets of all line ends, `[lines]` int64, of text that is valid UTF-8."""
  ends = [np.zeros(0, np.int64)]
  start = 0
  while start < len(data):
    # Cut at a line end, which is never inside a character; the last byte is one.
    stop = data.find(b'\n', min(start + _CHUNK, len(data) - 1)) + 1
    try:
      data[start:stop].decode('utf-8')
    except UnicodeDecodeError as error:
      offset = start + error.start
      line = data.count(b'\n', 0, offset) + 1
      raise UserError(f'{name} must be UTF-8; line {line} is not, at the byte '
                      f'0x{data[offset]:02x}; convert the file') from error
    found = np.flatnonzero(np.frombuffer(data, np.uint8, stop - start, start) == ord('\n'))
    ends.append(found.astype(np.int64) + start)
    start = stop
  return np.concatenate(ends)


def _read_bytes(path: str | os.PathLike) -> bytes:
  if path == STANDARD_INPUT:
    return sys.stdin.buffer.read()
  path = Path(path).expanduser()
  try:
    return path.read_bytes()
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
