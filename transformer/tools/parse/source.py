"""Treebanks as sources of sentences and their linearised trees, for `data.source`."""

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from transformer.data.config import DataConfig
from transformer.data.text.text_files import TextFile
from transformer.errors import UserError
from transformer.tools.parse.linearisation import linearise
from transformer.tools.parse.treebank import Tree, bracketed, parse_trees

_LINES = 4096  # of a treebank, read together


class Trees:
  """The sentences of `{dir}/{split}.mrg`, with `XX` for each word in their linearised trees."""

  with_words = False

  def __init__(self, data: DataConfig, split: str):
    """Reads the trees.

    Raises:
      UserError: the file is missing, not UTF-8 or has no trees, or a line has a mistake.
    """
    if not data.dir:
      raise UserError('data.dir must name the folder of the trees; set --config.data.dir')
    self.name = f'{Path(data.dir) / split}.mrg'
    self.folder = Path(os.path.expanduser(self.name)).parent
    self._file = TextFile(self.name)
    self._pairs, traces = [], 0
    for tree in self._parsed():
      if tree.words:
        self._pairs.append((' '.join(tree.words), linearise(tree, self.with_words)))
      else:
        traces += 1
    if not self._pairs:
      raise UserError(f'a corpus must hold at least one tree with words; {self.name} has none')
    self.fingerprint = hashlib.sha256(
        f'trees {self.with_words} {self._file.fingerprint}'.encode()).hexdigest()
    self.notes = self._file.notes
    if traces:
      self.notes += (f'{self.name}: trees that hold only traces were left out: {traces}',)

  @functools.cached_property
  def gold(self) -> list[str]:
    """Each tree with its words and tags, in brackets on one line, as scores need them."""
    return [bracketed(tree) for tree in self._parsed() if tree.words]

  def _parsed(self) -> Iterator[Tree]:
    """Yields the trees; only a few thousand lines are in memory at a time."""
    count = len(self._file)
    lines = (line for start in range(0, count, _LINES)
             for line in self._file.read(start, min(start + _LINES, count)))
    return parse_trees(lines, self.name)

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    return self._pairs[pairs]


class TreesWithWords(Trees):
  """The same, with the words of the sentences in their linearised trees."""

  with_words = True
