"""The texts that a run translates or scores: a split of its data, or files."""

import glob
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from absl import logging

from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError


class Text(NamedTuple):
  """Sentences and their references.

  Attributes:
    name: the text's name in results.
    sources: the sentences.
    references: one sequence for each reference translation; none if the text is only translated.
    gold: what metrics of one's own get in place of the references; None if there is no such thing.
  """

  name: str
  sources: list[str]
  references: list[list[str]]
  gold: Sequence[str] | None = None

  @property
  def digest(self) -> str:
    """The SHA-256 of the sentences and their references, as hexadecimal digits."""
    lines = itertools.chain(self.sources, *self.references)
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()


def read_parallel(source: str, others: Sequence[str], kind: str) -> tuple[
    list[str], list[list[str]]]:
  """Reads a file, and files that must have a line for each of its lines.

  Args:
    source: the first file, or `-` for standard input.
    others: the other files.
    kind: the word for the other files in errors.

  Raises:
    UserError: a file cannot be read, or the numbers of lines differ.
  """
  read = [read_lines(path) for path in others]
  sources = read_lines(source)
  for path, lines in zip(others, read, strict=True):
    if len(lines) != len(sources):
      raise UserError(f'source and {kind} must have a line for each other; {source} has '
                      f'{len(sources)} lines, {path} has {len(lines)}')
  return sources, read


def read_files(source: str, references: Sequence[str]) -> Text:
  """Reads a text from files; its name ends in a digest, which tells files of one name apart.

  Args:
    source: a file, or `-` for standard input.
    references: files of reference translations; may be empty.

  Raises:
    UserError: as `read_parallel`, or there are references and the source is empty.
  """
  sources, translations = read_parallel(source, references, 'reference')
  return _named_text(source, sources, translations)


def read_for_each(flag: str, path: str, sources: Sequence[str]) -> list[str]:
  """Reads the file of a flag that has a line for each source.

  Raises:
    UserError: the file cannot be read, or has another number of lines.
  """
  lines = read_lines(path)
  if len(lines) != len(sources):
    raise UserError(f'--{flag} must have a line for each sentence; there are {len(sources)}, and '
                    f'{path} has {len(lines)} lines')
  return lines


def _named_text(source: str, sources: list[str], translations: list[list[str]]) -> Text:
  if translations and not sources:
    raise UserError(f'there is nothing to score; {source} is empty')
  text = Text('stdin' if source == STANDARD_INPUT else Path(source).name, sources, translations)
  return text._replace(name=f'{text.name}.{text.digest[:8]}')


def split_name(data: DataConfig, asked: str) -> str:
  """Returns the name that the data has for `test`, `valid` or `train`; other names stay."""
  return {'test': data.test, **data.valid_sets, 'train': data.train[0]}.get(asked, asked)


def split_files(data: DataConfig, split: str) -> list[Path]:
  """Returns the files of a split, as far as they are known; none for a TFDS set."""
  if data.source == 'tfds':
    return []
  if data.source != 'text':  # A source of one's own often has files of a split's name.
    return sorted(Path(data.dir).expanduser().glob(f'{glob.escape(split)}.*'))
  return [Path(data.dir, f'{split}.{language}')
          for language in (data.source_language, data.target_language)]


def read_split(data: DataConfig, split: str, dir_flag: str) -> Text:
  """Reads a split of the data with its references.

  Args:
    data: where the corpora lie.
    split: a split or prefix by its own name.
    dir_flag: the flag that moves `data.dir`, for errors.

  Raises:
    UserError: there is no such split, or it cannot be read.
  """
  corpus = open_corpus(data, split, dir_flag=dir_flag)
  for note in corpus.notes:
    logging.warning('%s', note)
  sources, references = (list(side) for side in zip(*corpus[:], strict=True))
  return Text(split.replace('/', '_'), sources, [references], corpus.gold)
