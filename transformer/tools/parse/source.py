"""Treebanks as `data.source`: sentences and their linearized trees."""

import hashlib
from pathlib import Path

from transformer import files
from transformer.data.config import DataConfig
from transformer.data.text.text_files import TextFile
from transformer.errors import UserError
from transformer.tools.parse.linearization import linearize
from transformer.tools.parse.treebank import bracketed, parse_trees


class Trees:
  """The sentences of `{dir}/{split}.mrg`, with `XX` for each word in their linearized trees."""

  with_words = in_order = False

  def __init__(self, data: DataConfig, split: str):
    """Reads the trees."""
    if not data.dir:
      raise UserError(
        'data.dir must name the folder of the trees; set --config.data.dir'
      )
    self.name = f'{Path(data.dir) / split}.mrg'
    self.folder = files.as_path(self.name).parent
    file = TextFile(self.name)
    trees = list(parse_trees(file.read(0, len(file)), self.name))
    traces = sum(not tree.words for tree in trees)
    trees = [tree for tree in trees if tree.words]
    if not trees:
      raise UserError(
        f'a corpus must hold at least one tree with words; {self.name} has none'
      )
    self._pairs = []
    for tree in trees:
      line = linearize(tree, self.with_words, self.in_order)
      self._pairs.append((' '.join(tree.words), line))
    # Each tree with its words and tags, in brackets on one line, as required by the scores.
    self.gold = list(map(bracketed, trees))
    order = ' in order' if self.in_order else ''
    form = f'{self.with_words}{order}'
    self.fingerprint = hashlib.sha256(
      f'trees {form} {file.fingerprint}'.encode()
    ).hexdigest()
    self.notes = file.notes
    if traces:
      self.notes += (
        f'{self.name}: trees that hold only traces were left out: {traces}',
      )

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, pairs: slice) -> list[tuple[str, str]]:
    return self._pairs[pairs]


class TreesWithWords(Trees):
  """Like `Trees`, with the words of the sentences in their linearized trees."""

  with_words = True


class TreesInOrder(TreesWithWords):
  """Like `TreesWithWords`, with the first child of each constituent before its opening bracket."""

  in_order = True
