"""Drawings show every label and word of a tree, in order, and let no text become markup."""

import random
import re
import xml.etree.ElementTree as xml

from tests.data.random_trees import deep_tree, random_tree
from transformer.data.tree_drawing import draw_svg, draw_text
from transformer.data.treebank import Bracket, Tree, parse_trees

CAT, = parse_trees(['(S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on)',
                    '(NP (NP (NN it))))) (. .))'], 'a')
EMPTY = Tree((), (), ())
SPACE = '{http://www.w3.org/2000/svg}'


def test_text_is_indented_by_constituents():
  assert draw_text(CAT) == """\
S
├─ NP  The cat
├─ VP
│  ├─ sat
│  └─ PP
│     ├─ on
│     └─ NP ─ NP  it
└─ ."""
  assert draw_text(EMPTY) == ''


def test_text_has_every_label_and_word_in_order():
  drawn = random.Random(3)
  for _ in range(100):
    tree = random_tree(drawn)
    seen = re.findall(r'\w+', draw_text(tree))
    assert [each for each in seen if each in tree.words] == list(tree.words)
    assert [each for each in seen if each not in tree.words] == [
        each.label for each in tree.brackets]


def drawn_texts(svg):
  root = xml.fromstring(svg)
  return root, [(each.text, float(each.get('x')), float(each.get('y')))
                for each in root.iter(f'{SPACE}text')]


def drawn_edges(root):
  """Returns of each edge: x and y of its upper end, y of its bar, x and y of its lower end."""
  found = []
  for each in root.iter(f'{SPACE}path'):
    x, y, down, right, bottom = map(float, re.findall(r'[\d.]+', each.get('d')))
    assert re.sub(r'[\d.]+', '', each.get('d')) == 'M vHV'
    found.append((x, y, y + down, right, bottom))
  return found


def some_trees():
  drawn = random.Random(4)
  narrow, = parse_trees(['(S (WHADVP (DT a)) (WHADJP (DT b) (DT 東京)))'], 'a')
  return [CAT, EMPTY, narrow, *(random_tree(drawn) for _ in range(100))]


def test_svg_has_every_label_above_its_words():
  for tree in some_trees():
    _, texts = drawn_texts(draw_svg(tree))
    brackets, words = texts[:len(tree.brackets)], texts[len(tree.brackets):]
    assert [text for text, *_ in brackets] == [each.label for each in tree.brackets]
    assert [text for text, *_ in words] == list(tree.words)
    xs = [x for _, x, _ in words]
    assert xs == sorted(set(xs)) and len({y for *_, y in words}) <= 1
    for (_, x, y), (_, start, stop) in zip(brackets, tree.brackets, strict=True):
      assert xs[start] <= x <= xs[stop - 1] and y < words[0][2]


def test_texts_of_svg_do_not_overlap():
  for tree in some_trees():
    root, texts = drawn_texts(draw_svg(tree))
    assert (root.get('font-family'), root.get('font-size')) == ('monospace', '13')
    right = {}  # The end of the last text of each row.
    for text, x, y in sorted(texts, key=lambda each: each[1]):
      width = 8 * len(text) * (1 + (text == '東京'))
      assert right.get(y, 0) < x - width / 2
      right[y] = x + width / 2
      assert right[y] < float(root.get('width')) and 0 < y < float(root.get('height'))


def test_edges_of_svg_lead_to_each_child_and_cross_no_text():
  for tree in some_trees():
    root, texts = drawn_texts(draw_svg(tree))
    spans = [each[1:] for each in tree.brackets] + [
        (index, index + 1) for index in range(len(tree.words))]
    wanted = []
    for child, (start, stop) in enumerate(spans[1:], 1):
      parent = max(place for place, span in enumerate(spans[:min(child, len(tree.brackets))])
                   if span[0] <= start and stop <= span[1])
      wanted.append((texts[parent][1:], texts[child][1:]))
    edges = drawn_edges(root)
    assert sorted(((x, y - 5), (right, bottom + 13)) for x, y, _, right, bottom in edges) == (
        sorted(wanted))
    for _, y, bar, right, bottom in edges:
      assert y < bar < bottom
      for text, x, row in texts:
        assert row + 4 < y or row - 12 > bar
        assert row + 4 < bar or row - 12 > bottom or abs(right - x) > 4 * len(text)


def test_no_text_becomes_markup():
  hostile = Tree(('</text><script>', '\x00\ud800&"'), ('NN', 'NN'), (Bracket('<b>', 0, 2),))
  root, texts = drawn_texts(draw_svg(hostile))
  assert [text for text, *_ in texts] == ['<b>', '</text><script>', '\ufffd\ufffd&"']
  assert not list(root.iter(f'{SPACE}script'))


def test_a_tree_of_any_depth_is_drawn():
  tree = deep_tree(5000)
  assert len(drawn_texts(draw_svg(tree))[1]) == 10_000
  assert draw_text(deep_tree(500)).count('\n') == 998
  chain = Tree(('a',), ('NN',), (Bracket('S', 0, 1),) * 5000)
  assert draw_text(chain).count('S') == 5000
