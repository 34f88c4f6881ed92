"""Sentence pairs at random access, from text files or from TensorFlow Datasets."""

import hashlib
import operator
import os
from pathlib import Path
from typing import Protocol, SupportsIndex, overload

from transformer.data.config import DataConfig
from transformer.data.text_files import TextFile
from transformer.errors import UserError

# What is made of a corpus and may be made again is kept here, in the corpus's `folder`.
FOLDER = 'encoded'


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

  @overload
  def __getitem__(self, index: SupportsIndex) -> tuple[str, str]:
    """Returns the source and the target sentence of a pair in [0, len)."""

  @overload
  def __getitem__(self, index: slice) -> list[tuple[str, str]]:
    """Returns pairs that follow one another, which is quicker than one by one."""


def open_corpus(config: DataConfig, split: str, *, aligned: bool = True,
                dir_flag: str = '--config.data.dir') -> Corpus:
  """Opens one corpus of those that `config` names.

  Args:
    config: says where the corpora lie, and which two languages are read.
    split: a TFDS split, such as `train` or `train[:10%]`; for text the prefix
      of `{dir}/{prefix}.{language}`.
    aligned: as in `TextCorpus`; the sides of a TFDS set always are.
    dir_flag: what an error calls the flag that says where the corpora lie.

  Raises:
    UserError: there is no such corpus, or it cannot be read, or it is empty.
  """
  languages = (config.source_language, config.target_language)
  try:
    if config.source == 'text':
      return TextCorpus(Path(config.dir) / split, *languages, aligned=aligned)
    from transformer.data import tfds_sets  # Whoever has text files needs no TFDS.
    return tfds_sets.open_set(config.name, split, *languages, data_dir=config.dir)
  except UserError as error:
    if not config.dir or os.path.isdir(os.path.expanduser(config.dir)):
      raise
    raise UserError(f'{error}; if the data lies elsewhere, give {dir_flag}=DIR') from error


class TextCorpus:
  """A pair of line-aligned UTF-8 files, which must stay as they are; see `Corpus`.

  Attributes:
    lines: how many lines each file has.
  """

  def __init__(self, prefix: Path, source_language: str, target_language: str, *,
               aligned: bool = True):
    """Looks at all of both files; where they are large, only once, and not at every start.

    Args:
      prefix: the files are `{prefix}.{language}`.
      source_language: as the first file's name has it.
      target_language: as the second's has it.
      aligned: whether to insist on as many lines in both, and on one at least. If not,
        there are as many pairs as the shorter file has lines.

    Raises:
      UserError: a file is missing or not UTF-8, both are empty, or their
        numbers of lines differ.
    """
    self.name = str(prefix)
    self.folder = Path(os.path.expanduser(prefix)).parent
    self._source, self._target = (TextFile(f'{prefix}.{language}', self.folder / FOLDER)
                                  for language in (source_language, target_language))
    self.lines = len(self._source), len(self._target)
    if aligned and len(self._source) != len(self._target):
      raise UserError(
          f'source and target must have a line for each other; {self._source.name} has '
          f'{len(self._source)} lines, {self._target.name} has {len(self._target)}')
    if aligned and not len(self._source):
      raise UserError(f'a corpus must hold at least one pair; {self._source.name} and '
                      f'{self._target.name} are empty')
    digests = (self._source.fingerprint + self._target.fingerprint).encode()
    self.fingerprint = hashlib.sha256(digests).hexdigest()
    self.notes = self._source.notes + self._target.notes

  def __len__(self) -> int:
    return min(self.lines)

  def __getitem__(self, index):
    if not isinstance(index, slice):
      index = check_index(index, len(self))
      return self[index:index + 1][0]
    start, stop = check_slice(index, len(self))
    return list(zip(self._source.read(start, stop), self._target.read(start, stop), strict=True))


def check_index(index: SupportsIndex, length: int) -> int:
  """Returns `index` as an int.

  Raises:
    IndexError: it is not in [0, length); iteration over a corpus ends by it.
  """
  index = operator.index(index)
  if not 0 <= index < length:
    raise IndexError(f'index must lie in [0, {length}); got {index}')
  return index


def check_slice(index: slice, length: int) -> tuple[int, int]:
  """Returns where a slice starts and stops, in [0, length].

  Raises:
    ValueError: it leaves pairs out, or goes backwards.
  """
  start, stop, step = index.indices(length)
  if step != 1:
    raise ValueError(f'pairs are read one after the other; got a step of {step}')
  return start, max(start, stop)
