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


class EvalSet(NamedTuple):
  """Source sentences and their references; there are none if the text is only translated."""

  name: str  # in results
  sources: list[str]
  references: list[list[str]]
  # References for custom metrics, if they differ.
  gold: Sequence[str] | None = None

  @property
  def digest(self) -> str:
    """The SHA-256 of the sources and their references."""
    lines = itertools.chain(self.sources, *self.references)
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()


def read_aligned_lines(flag: str, path: str, sources: Sequence[str]) -> list[str]:
  """Returns the lines of a file; raises `UserError` unless it has one line per source."""
  lines = read_lines(path)
  if len(lines) != len(sources):
    raise UserError(
      f'--{flag} must have one line per source sentence; {path} has {len(lines)} lines for '
      f'{len(sources)} sentences'
    )
  return lines


def read_files(source: str, references: Sequence[str]) -> EvalSet:
  """Returns a text from files; its name ends in a digest, to distinguish files of the same name."""
  sources = read_lines(source)
  if references and not sources:
    raise UserError(f'{source} is empty, so there is nothing to score')
  eval_set = EvalSet(
    'stdin' if source == STANDARD_INPUT else Path(source).name,
    sources,
    [read_aligned_lines('reference', path, sources) for path in references],
  )
  return eval_set._replace(name=f'{eval_set.name}.{eval_set.digest[:8]}')


def split_files(data: DataConfig, split: str) -> list[Path]:
  """Returns the known files of a split; [] for a TFDS dataset."""
  if data.source == 'tfds':
    return []
  # A custom source often has files that are named after the split.
  if data.source != 'text':
    return sorted(files.as_path(data.dir).glob(f'{glob.escape(split)}.*'))
  return [
    Path(data.dir, f'{split}.{language}{ending}')
    for ending in ('', '.gz')
    for language in (data.source_language, data.target_language)
  ]


def read_split(data: DataConfig, split: str) -> EvalSet:
  """Returns a split of the data; `split` is the data's name for it."""
  corpus = open_corpus(data, split, dir_flag='--data_dir')
  sources, references = map(list, zip(*corpus[:], strict=True))
  return EvalSet(split.replace('/', '_'), sources, [references], corpus.gold)
