"""Opens sentence pairs: text files, TensorFlow Datasets, or a source of one's own.

`data.source` names the class of a run's corpora: `text`, `tfds`, or MODULE:CLASS for a class of
one's own, which is called once for each split; docs/own-parts.md has an example.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from transformer import own_code
from transformer.data.config import DataConfig
from transformer.data.text.text_files import TextCorpus
from transformer.errors import UserError


class Corpus(Protocol):
  """Sentence pairs by number; can be read by many threads at a time.

  Attributes:
    name: a name for people, such as `wmt14_translate/de-en:train`.
    fingerprint: SHA-256 in hexadecimal, the same on every machine. It covers the whole text, but
      for a TFDS set, where it covers only the metadata.
    notes: sentences about what looks odd.
    folder: where files that are computed from the corpus are kept; None keeps none.
    gold: a line for each pair, which metrics of one's own get in place of the targets; None if they
      get the targets.
  """

  name: str
  fingerprint: str
  notes: tuple[str, ...]
  folder: Path | None
  gold: Sequence[str] | None

  def __len__(self) -> int:
    """Returns the number of pairs, at least one."""

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    """Returns consecutive pairs, each a source and a target sentence."""


def open_corpus(config: DataConfig, split: str, *, aligned: bool = True,
                dir_flag: str = '--config.data.dir') -> Corpus:
  """Opens one corpus.

  Args:
    config: names the source, and the place of its corpora.
    split: a TFDS split, such as `train` or `train[:10%]`; the prefix of text files; or a name that
      a source of one's own understands.
    aligned: as in `TextCorpus`; other sources are always aligned.
    dir_flag: the flag that sets the place of the corpora, as error messages name it.
  """
  try:
    if config.source == 'text':
      return TextCorpus(config, split, aligned=aligned)
    if config.source == 'tfds':  # Its libraries take a second to import.
      from transformer.data.text.tfds_sets import TfdsCorpus
      return TfdsCorpus(config, split)
    return OwnCorpus(config, split)
  except UserError as error:
    if not config.dir or os.path.isdir(os.path.expanduser(config.dir)):
      raise
    raise UserError(f'{error}; if the data lies elsewhere, give {dir_flag}=DIR') from error


class OwnCorpus:
  """A corpus of a class of one's own; a mistake in that class is a `UserError`."""

  def __init__(self, config: DataConfig, split: str):
    self._what = f'the source {config.source}, split {split!r},'
    with own_code.guarded(f'{self._what} cannot be opened'):
      self._pairs = own_code.load(config.source, 'source')(config, split)
      self.fingerprint, length = str(self._pairs.fingerprint), len(self._pairs)
    if not length:
      raise UserError(f'a corpus must hold at least one pair; {self._what} is empty')
    self.name: str = getattr(self._pairs, 'name', f'{config.source}:{split}')
    self.notes: tuple[str, ...] = tuple(getattr(self._pairs, 'notes', ()))
    self.folder: Path | None = getattr(self._pairs, 'folder', None)
    self[:1]  # A class whose pairs are no texts is refused before anything is learned from them.

  @property
  def gold(self) -> Sequence[str] | None:
    return getattr(self._pairs, 'gold', None)

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    wanted = len(range(*pairs.indices(len(self))))
    with own_code.guarded(f'{self._what} cannot be read'):
      sentences = [(source, target) for source, target in self._pairs[pairs]]
    if len(sentences) != wanted or not all(isinstance(side, str) for pair in sentences
                                           for side in pair):
      raise UserError(f'{self._what} must hold a source and a target as text for each of its pairs;'
                      f' got {len(sentences)} of {wanted} pairs, such as {sentences[:1]!r:.100}')
    return sentences
