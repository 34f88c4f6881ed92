"""Drawings show every label and word of a tree, in order."""

import random
import re

from tests.tools.parse.random_trees import deep_tree, random_tree
from transformer.tools.parse.drawing import draw
from transformer.tools.parse.treebank import Bracket, Tree, parse_trees

CAT, = parse_trees(['(S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on)',
                    '(NP (NP (NN it))))) (. .))'], 'a')
EMPTY = Tree((), (), ())


def test_lines_are_indented_by_constituents():
  assert draw(CAT) == """\
S
├─ NP  The cat
├─ VP
│  ├─ sat
│  └─ PP
│     ├─ on
│     └─ NP ─ NP  it
└─ ."""
  assert draw(EMPTY) == ''


def test_every_label_and_word_is_drawn_in_order():
  drawn = random.Random(3)
  for _ in range(100):
    tree = random_tree(drawn)
    seen = re.findall(r'\w+', draw(tree))
    assert [each for each in seen if each in tree.words] == list(tree.words)
    assert [each for each in seen if each not in tree.words] == [
        each.label for each in tree.brackets]


def test_a_tree_of_any_depth_is_drawn():
  assert draw(deep_tree(500)).count('\n') == 998
  chain = Tree(('a',), ('NN',), (Bracket('S', 0, 1),) * 5000)
  assert draw(chain).count('S') == 5000
