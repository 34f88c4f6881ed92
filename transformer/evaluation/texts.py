"""The texts that a run translates or scores: a split of its data, or files."""

import glob
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformer import files
from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError


class Text(NamedTuple):
  """Sentences with their references; a text that is only translated has none."""

  name: str  # in results
  sources: list[str]
  references: list[list[str]]
  # For custom metrics, instead of the references.
  gold: Sequence[str] | None = None

  @property
  def digest(self) -> str:
    """The SHA-256 of the sentences and their references."""
    lines = itertools.chain(self.sources, *self.references)
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()


def read_beside(flag: str, path: str, sources: Sequence[str]) -> list[str]:
  """Reads the file of a flag, which must have a line for each source."""
  lines = read_lines(path)
  if len(lines) != len(sources):
    raise UserError(
      f'--{flag} must have a line for each sentence; there are {len(sources)}, and '
      f'{path} has {len(lines)} lines'
    )
  return lines


def read_files(source: str, references: Sequence[str]) -> Text:
  """Reads a text from files; its name ends in a digest, which tells files of one name apart."""
  sources = read_lines(source)
  if references and not sources:
    raise UserError(f'there is nothing to score; {source} is empty')
  text = Text(
    'stdin' if source == STANDARD_INPUT else Path(source).name,
    sources,
    [read_beside('reference', path, sources) for path in references],
  )
  return text._replace(name=f'{text.name}.{text.digest[:8]}')


def split_files(data: DataConfig, split: str) -> list[Path]:
  """Returns the files of a split, as far as they are known; none for a TFDS set."""
  if data.source == 'tfds':
    return []
  if data.source != 'text':  # A source of one's own often has files of a split's name.
    return sorted(files.as_path(data.dir).glob(f'{glob.escape(split)}.*'))
  return [
    Path(data.dir, f'{split}.{language}{ending}')
    for ending in ('', '.gz')
    for language in (data.source_language, data.target_language)
  ]


def read_split(data: DataConfig, split: str) -> Text:
  """Reads a split of the data, by its own name."""
  corpus = open_corpus(data, split, dir_flag='--data_dir')
  sources, references = (list(side) for side in zip(*corpus[:], strict=True))
  return Text(split.replace('/', '_'), sources, [references], corpus.gold)
