"""Opens sentence pairs from text files, treebanks or TensorFlow Datasets."""

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from transformer.data.config import DataConfig
from transformer.data.corpus import FOLDER, Corpus, check_index, check_slice
from transformer.data.linearisation import linearise
from transformer.data.text_files import TextFile
from transformer.data.treebank import Tree, bracketed, parse_trees
from transformer.errors import UserError

_LINES = 4096  # of a treebank, read together


def open_corpus(config: DataConfig, split: str, *, aligned: bool = True,
                dir_flag: str = '--config.data.dir') -> Corpus:
  """Opens one corpus.

  Args:
    config: the place of the corpora, and their languages.
    split: a TFDS split, such as `train` or `train[:10%]`; or the prefix
      of `{dir}/{prefix}.{language}` or of `{dir}/{prefix}.mrg`.
    aligned: as in `TextCorpus`; the sides of a TFDS set are always aligned.
    dir_flag: the flag that sets the place of the corpora, as error messages name it.

  Raises:
    UserError: the corpus does not exist, cannot be read or is empty.
  """
  languages = (config.source_language, config.target_language)
  try:
    if config.source == 'text':
      return TextCorpus(Path(config.dir) / split, *languages, aligned=aligned)
    if config.source == 'trees':
      return TreeCorpus(Path(config.dir) / split, config.tree_words)
    from transformer.data import tfds_sets  # Text files need no TFDS.
    return tfds_sets.open_set(config.name, split, *languages, data_dir=config.dir)
  except UserError as error:
    if not config.dir or os.path.isdir(os.path.expanduser(config.dir)):
      raise
    raise UserError(f'{error}; if the data lies elsewhere, give {dir_flag}=DIR') from error


class TextCorpus:
  """A `Corpus` of two line-aligned UTF-8 files, which must not change.

  Attributes:
    lines: the numbers of lines of the two files.
  """

  def __init__(self, prefix: Path, source_language: str, target_language: str, *,
               aligned: bool = True):
    """Opens both files; reads all of a large file only the first time, as `TextFile` does.

    Args:
      prefix: the files are `{prefix}.{language}`.
      source_language: the language in the first file's name.
      target_language: the language in the second file's name.
      aligned: refuses files that are empty or differ in their numbers of lines. If False,
        the corpus ends with the shorter file.

    Raises:
      UserError: a file is missing or not UTF-8, or `aligned` refuses the files.
    """
    self.name = str(prefix)
    self.folder = Path(os.path.expanduser(prefix)).parent
    self._source, self._target = (TextFile(f'{prefix}.{language}', self.folder / FOLDER)
                                  for language in (source_language, target_language))
    self.lines = len(self._source), len(self._target)
    self.notes = self._source.notes + self._target.notes
    if aligned and len(self._source) != len(self._target):
      raise UserError('; '.join((
          f'source and target must have the same number of lines; {self._source.name} has '
          f'{len(self._source)} lines, {self._target.name} has {len(self._target)}', *self.notes)))
    if aligned and not len(self._source):
      raise UserError(f'a corpus must hold at least one pair; {self._source.name} and '
                      f'{self._target.name} are empty')
    digests = (self._source.fingerprint + self._target.fingerprint).encode()
    self.fingerprint = hashlib.sha256(digests).hexdigest()

  def __len__(self) -> int:
    return min(self.lines)

  def __getitem__(self, index):
    if not isinstance(index, slice):
      index = check_index(index, len(self))
      return self[index:index + 1][0]
    start, stop = check_slice(index, len(self))
    return list(zip(self._source.read(start, stop), self._target.read(start, stop), strict=True))


class TreeCorpus:
  """A `Corpus` of a treebank: the words are the source, and linearised trees the target."""

  def __init__(self, prefix: Path, with_words: bool = False):
    """Reads the trees of `{prefix}.mrg`.

    Args:
      prefix: the path of the file, without `.mrg`.
      with_words: as in `linearise`.

    Raises:
      UserError: the file is missing, not UTF-8 or empty, or a line has a mistake.
    """
    self.name = f'{prefix}.mrg'
    self.folder = Path(os.path.expanduser(prefix)).parent
    self._file = TextFile(self.name, self.folder / FOLDER)
    self._pairs, traces = [], 0
    for tree in self._parsed():
      if tree.words:
        self._pairs.append((' '.join(tree.words), linearise(tree, with_words)))
      else:
        traces += 1
    if not self._pairs:
      raise UserError(f'a corpus must hold at least one tree with words; {self.name} has none')
    self.fingerprint = hashlib.sha256(
        f'trees {with_words} {self._file.fingerprint}'.encode()).hexdigest()
    self.notes = self._file.notes
    if traces:
      self.notes += (f'{self.name}: trees that hold only traces were left out: {traces}',)

  @functools.cached_property
  def trees(self) -> list[str]:
    """Each tree with its words and tags, in brackets on one line."""
    return [bracketed(tree) for tree in self._parsed() if tree.words]

  def _parsed(self) -> Iterator[Tree]:
    """Yields the trees; only a few thousand lines are in memory at a time."""
    count = len(self._file)
    lines = (line for start in range(0, count, _LINES)
             for line in self._file.read(start, min(start + _LINES, count)))
    return parse_trees(lines, self.name)

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, index):
    if not isinstance(index, slice):
      return self._pairs[check_index(index, len(self))]
    start, stop = check_slice(index, len(self))
    return self._pairs[start:stop]
