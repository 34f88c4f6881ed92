"""Sentences and their linearised trees, from a file of trees."""

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from transformer.data.config import DataConfig
from transformer.data.corpus import check_index, check_slice
from transformer.data.linearisation import linearise
from transformer.data.text_files import TextFile
from transformer.data.treebank import Tree, bracketed, parse_trees
from transformer.errors import UserError

_LINES = 4096  # of a treebank, read together


class TreeCorpus:
  """A `Corpus` of a treebank: the words are the source, and linearised trees the target."""

  def __init__(self, config: DataConfig, split: str):
    """Reads the trees of `{dir}/{split}.mrg`.

    Raises:
      UserError: the file is missing, not UTF-8 or empty, or a line has a mistake.
    """
    self.name = str(Path(config.dir) / f'{split}.mrg')
    self.folder = Path(os.path.expanduser(self.name)).parent
    with_words = config.tree_words
    self._file = TextFile(self.name)
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
