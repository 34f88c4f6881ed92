"""Constituency trees in Penn Treebank brackets.

No function here is recursive, so the depth of a tree is unlimited.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from transformer.data.text.text_files import STANDARD_INPUT, read_lines
from transformer.errors import UserError, short_repr

TAG = 'XX'  # Replaces every part-of-speech tag.
TOP = 'TOP'  # The label of a root that only joins its children.
_ROOTS = ('', 'ROOT', 'S1', TOP)
_TRACE = '-NONE-'
# A word with its tag; an opening bracket with its label; a closing bracket; anything else.
_TOKEN = re.compile(
  r'\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|[^\s()]+', re.ASCII
)
_WORD = re.compile(r'\S+', re.ASCII)


class Bracket(NamedTuple):
  """A constituent.

  Attributes:
    label: its plain label, such as `NP`.
    start: the index of its first word, from 0.
    stop: the index after its last word.
  """

  label: str
  start: int
  stop: int


class Tree(NamedTuple):
  """A sentence.

  Attributes:
    words: the words.
    tags: the part-of-speech tag of each word.
    brackets: constituents with at least one word, each before those inside it and to its right. The
      first bracket spans all words.
  """

  words: tuple[str, ...]
  tags: tuple[str, ...]
  brackets: tuple[Bracket, ...]


def plain_label(label: str) -> str:
  """Removes functions and indices after `-` or `=`, as EVALB does; `-LRB-` is unchanged."""
  return label if label.startswith(('-', '=')) else re.split('[-=]', label)[0]


class Builder:
  """Collects words and constituents of a tree from left to right; labels are made plain."""

  def __init__(self):
    self.words, self.tags, self.brackets = [], [], []
    self.open = []  # Indices of open constituents in `brackets`, outermost first.

  def begin(self, label: str):
    """Opens a constituent."""
    self.open.append(len(self.brackets))
    self.brackets.append(Bracket(plain_label(label), len(self.words), -1))

  def add(self, word: str, tag: str):
    """Adds a word."""
    self.words.append(word)
    self.tags.append(tag)

  def end(self):
    """Closes the innermost constituent; removes it if it has no words."""
    place = self.open.pop()
    label, start, _ = self.brackets[place]
    if start == len(self.words):
      self.brackets.pop()
    else:
      self.brackets[place] = Bracket(label, start, len(self.words))

  def close(self, label: str):
    """Closes the innermost open `label` and all constituents inside it.

    If there is none, closes the innermost constituent.
    """
    label = plain_label(label)
    count = 1
    for height, place in enumerate(reversed(self.open), 1):
      if self.brackets[place].label == label:
        count = height
        break
    for _ in range(count):
      self.end()

  def tree(self) -> Tree:
    """Returns the tree with one root: its single root, otherwise `TOP`."""
    whole = (0, len(self.words))
    brackets = self.brackets
    while (
      len(brackets) > 1 and brackets[0].label in _ROOTS and brackets[1][1:] == whole
    ):
      brackets = brackets[1:]
    if self.words and (not brackets or brackets[0][1:] != whole):
      brackets = [Bracket(TOP, *whole), *brackets]
    elif brackets and brackets[0].label in _ROOTS:
      brackets = [Bracket(TOP, *whole), *brackets[1:]]
    return Tree(tuple(self.words), tuple(self.tags), tuple(brackets))


def read_trees(path: str | os.PathLike) -> list[Tree]:
  """Reads a file of trees, or standard input for `-`; trees with only traces are omitted."""
  name = 'standard input' if path == STANDARD_INPUT else os.fspath(path)
  return [tree for tree in parse_trees(read_lines(path), name) if tree.words]


def parse_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
  """Yields trees in Penn Treebank brackets, without the parts that docs/parsing.md excludes.

  A tree with only traces is yielded without words. Error messages include the name and the line.
  """
  rule = f'{name} must hold trees in Penn Treebank brackets'
  text = '\n'.join(lines)
  builder = Builder()
  began = 0
  is_empty = False  # Whether the last token is an opening bracket.
  for match in _TOKEN.finditer(text):
    tag, word, label, close = match.groups()
    if not builder.open:
      began = match.start()
    if word:
      if tag != _TRACE:
        builder.add(word, tag)
    elif label or (label == '' and not builder.open):
      builder.begin(label)
    elif close and builder.open and not is_empty:
      builder.end()
    else:
      raise UserError(
        f'{rule}; line {_line(text, match.start())} has {short_repr(match[0].strip())} '
        'where it is '
        f'not allowed, in the tree that begins in line {_line(text, began)}'
      )
    is_empty = label is not None
    if not builder.open:
      yield builder.tree()
      builder = Builder()
  if builder.open:
    raise UserError(
      f'{rule}; line {_line(text, began)} begins a tree whose brackets are not all closed'
    )


def _line(text: str, place: int) -> int:
  return 1 + text.count('\n', 0, place)


def parse_tree(line: str) -> Tree:
  """Returns the tree in a line that `bracketed` has written."""
  (tree,) = parse_trees([line], 'a tree')
  return tree


def escaped(word: str) -> str:
  """Returns a word with parentheses escaped as in the Penn Treebank."""
  return word.replace('(', '-LRB-').replace(')', '-RRB-')


def bracketed(tree: Tree) -> str:
  """Returns a tree with its words and tags on one line, in Penn Treebank brackets."""
  parts = []
  for step, label, word in walk(tree):
    if word is not None:
      parts.append(f' ({tree.tags[word]} {escaped(tree.words[word])})')
    elif step == '(':
      parts.append(f' ({label}')
    else:
      parts.append(')')
  return ''.join(parts).strip()


def split_words(sentence: str) -> list[str]:
  """Returns the words of a sentence, split only at ASCII white space."""
  return _WORD.findall(sentence)


def walk(tree: Tree) -> Iterator[tuple[str, str, int | None]]:
  """Yields (`(` or `)`, label of a constituent, None), and ('', '', index) for each word."""
  inside = []
  place = 0
  for index in range(len(tree.words)):
    while place < len(tree.brackets) and tree.brackets[place].start == index:
      inside.append(tree.brackets[place])
      yield '(', inside[-1].label, None
      place += 1
    yield '', '', index
    while inside and inside[-1].stop == index + 1:
      yield ')', inside.pop().label, None
