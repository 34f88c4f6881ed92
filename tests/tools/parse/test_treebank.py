"""Trees are read, written, and linearized; other text becomes a tree, with its repairs."""

import itertools
import random

import pytest

from tests.tools.parse.random_trees import deep_tree, random_text, random_tree
from transformer.errors import UserError
from transformer.tools.parse.linearization import (
  delinearize,
  is_linearized,
  linearize,
)
from transformer.tools.parse.treebank import (
  TAG,
  Bracket,
  Tree,
  bracketed,
  parse_trees,
  read_trees,
  split_words,
)

TREEBANK = """\
( (S
    (NP-SBJ-1 (DT The) (NN cat) )
    (VP (VBD was)
      (VP (VBN seen)
        (NP (-NONE- *-1) )
        (PP-LOC=2 (-LRB- -LRB-) (IN at) (NP (NN home) )(-RRB- -RRB-))
        (SBAR (-NONE- 0) (S (-NONE- *T*-1) ))))
    (. .) ))

(ROOT (NP=2 (NN Introduction))) (TOP (S1 (VP (VB Go)))) (ROOT (UH Yes))
( (S (-NONE- *)))
((NP (NN a)) (, ,) (VP|S (VB b)) (-LRB- (NN c)))
"""
CAT = (
  '(S (NP (DT The) (NN cat)) (VP (VBD was) (VP (VBN seen) (PP (-LRB- -LRB-) (IN at) '
  '(NP (NN home)) (-RRB- -RRB-)))) (. .))'
)


def parse(text):
  return list(parse_trees(text.split('\n'), 'trees'))


def without_tags(tree):
  return tree._replace(tags=(TAG,) * len(tree.words))


def check(tree):
  """Every constituent has words and is within its parent; the first holds all."""
  inside = []
  for index, (label, start, stop) in enumerate(tree.brackets):
    assert label and 0 <= start < stop <= len(tree.words)
    assert index or (start, stop) == (0, len(tree.words))
    while inside and inside[-1] <= start:
      inside.pop()
    assert not inside or stop <= inside[-1]
    inside.append(stop)
  starts = [bracket.start for bracket in tree.brackets]
  assert starts == sorted(starts)
  assert bool(tree.brackets) == bool(tree.words)


def test_a_treebank_file_is_read_without_traces_functions_and_outer_brackets(tmp_path):
  (tmp_path / 'a.mrg').write_text(TREEBANK, 'utf-8')
  trees = read_trees(tmp_path / 'a.mrg')
  assert [bracketed(tree) for tree in trees] == [
    CAT,
    '(NP (NN Introduction))',
    '(VP (VB Go))',
    '(TOP (UH Yes))',
    '(TOP (NP (NN a)) (, ,) (VP|S (VB b)) (-LRB- (NN c)))',
  ]
  assert linearize(trees[0]) == (
    '(S (NP XX XX )NP (VP XX (VP XX (PP XX XX (NP XX )NP XX )PP )VP )VP XX )S'
  )
  assert trees[0].words == (
    'The',
    'cat',
    'was',
    'seen',
    '-LRB-',
    'at',
    'home',
    '-RRB-',
    '.',
  )
  assert trees[0].brackets[:2] == (Bracket('S', 0, 9), Bracket('NP', 0, 2))


def test_lines_and_spaces_do_not_matter():
  drawn = random.Random(0)
  trees = [random_tree(drawn) for _ in range(50)]
  text = '\n'.join(map(bracketed, trees))
  assert parse(text) == trees
  assert parse(text.replace(' ', '\n  ')) == parse(text.replace('\n', '  ')) == trees
  assert parse(text.replace('(', '\t( ').replace(')', ' )\r')) == trees
  # Only ASCII spaces part words.
  (tree,) = parse('(NP (CD 1\u00a0000) (NN km\u2028h))')
  assert tree.words == ('1\u00a0000', 'km\u2028h')
  assert split_words(' 1\u00a0000  km\u2028h\r') == list(tree.words)
  assert delinearize(linearize(tree, True), tree.words) == without_tags(tree)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('(S (NN a))\n(S (NN a)))', r"line 2 has '\)' where it is not allowed"),
    (
      '(S (NN a))\n\n(S (NN a)\n(S (NN b))\n',
      'line 3 begins a tree whose brackets are not all',
    ),
    (
      '(S (NN a)\n( (S (NN b)))',
      r"line 2 has '\(' where it is not allowed, in the tree that begins in line 1",
    ),
    ('(S (NP))', r"line 1 has '\)'"),
    ('(S (NN a b))', "has 'a'"),
    ('A sentence.', "has 'A'"),
  ],
)
def test_an_invalid_tree_is_rejected_with_its_line(tmp_path, text, message):
  path = tmp_path / 'a.mrg'
  path.write_text(text, 'utf-8')
  with pytest.raises(UserError, match=message) as caught:
    read_trees(path)
  assert str(caught.value).startswith(f'{path} must hold trees') and '\n' not in str(
    caught.value
  )


def test_sequences_give_trees_back():
  drawn = random.Random(1)
  for _ in range(300):
    tree = random_tree(drawn)
    check(tree)
    for form in itertools.product((False, True), repeat=2):
      text = linearize(tree, *form)
      assert delinearize(text, tree.words) == without_tags(tree)
      assert is_linearized(f' {text}\r', tree)


def test_any_text_becomes_a_tree_of_the_words_and_says_whether_it_was_one():
  drawn = random.Random(2)
  repaired = 0
  for _ in range(3000):
    text, words = random_text(drawn), tuple('abcdefg')[: drawn.randint(0, 7)]
    tree = delinearize(text, words)
    check(tree)
    assert tree.words == words and tree.tags == (TAG,) * len(words)
    assert not words or delinearize(linearize(tree), words) == tree
    repaired += not is_linearized(text, tree)
  assert repaired > 2900


@pytest.mark.parametrize(
  ('text', 'wanted'),
  [
    ('(S (NP the dog )NP sat )S', '(S (NP XX XX )NP XX )S'),
    ('(S (NP the )NP sat )S', '(S (NP XX XX )NP XX )S'),
    ('(S (NP the big cat )NP sat down )S', '(S (NP XX XX )NP XX )S'),
    ('(S (NP the cat )NP (VP down )VP sat )S', '(S (NP XX XX )NP XX )S'),
    ('(S (NP the cat )NP (PP ( on )PP sat )S', '(S (NP XX XX )NP XX )S'),
    ('the NP( cat )NP S( sat VP( )VP )S', '(S (NP XX XX )NP (VP XX )VP )S'),
    ('the NP( VP( cat )NP S( sat )S', '(S (NP XX (VP XX )VP )NP XX )S'),
    ('the NP( cat )NP S( sat VP( )S', '(S (NP XX XX )NP (VP XX )VP )S'),
    (')S the NP( cat )NP S( sat )PP', '(S (NP XX XX )NP XX )S'),
    ('the NP( VP( )VP cat )NP S( sat )S', '(S (NP XX XX )NP XX )S'),
  ],
)
def test_how_words_are_aligned_to_source_words(text, wanted):
  assert linearize(delinearize(text, ('the', 'cat', 'sat'))) == wanted


def test_words_that_are_brackets_or_xx_are_distinguished():
  words = ('(', 'XX', 'a)', 'XX')
  tree = Tree(words, (TAG,) * 4, (Bracket('NP', 0, 4), Bracket('X', 1, 3)))
  assert linearize(tree, with_words=True) == '(NP -LRB- (X XX a-RRB- )X XX )NP'
  for form in itertools.product((False, True), repeat=2):
    assert delinearize(linearize(tree, *form), words) == tree
  assert bracketed(tree) == '(NP (XX -LRB-) (X (XX XX) (XX a-RRB-)) (XX XX))'


@pytest.mark.parametrize(
  ('text', 'wanted'),
  [
    ('(S (NP XX )NP XX', '(S (NP XX )NP XX )S'),
    ('(S (NP XX XX )S', '(S (NP XX XX )NP )S'),
    ('(S (NP XX )VP XX )S', '(S (NP XX )NP XX )S'),
    ('(S (NP XX )NP XX )S )S', '(S (NP XX )NP XX )S'),
    ('(S (NP XX )NP )S', '(S (NP XX )NP XX )S'),
    ('(S (NP XX )NP XX XX (VP XX )VP )S', '(S (NP XX )NP XX )S'),
    ('(S (NP XX )NP and XX )S', '(S (NP XX )NP XX )S'),
    ('(NP XX )NP (VP XX )VP', '(TOP (NP XX )NP (VP XX )VP )TOP'),
    ('(S-A (NP-SBJ (VP=1 XX )VP XX )NP-1 )S-B=2', '(S (NP (VP XX )VP XX )NP )S'),
    ('(-LRB- (=1 XX )=1 (NP-A XX )-LRB-', '(-LRB- (=1 XX )=1 (NP XX )NP )-LRB-'),
    ('', '(TOP XX XX )TOP'),
    ('(S', '(TOP XX XX )TOP'),
  ],
)
def test_how_each_invalid_tree_is_repaired(text, wanted):
  assert linearize(delinearize(text, ('a', 'b'))) == wanted


def test_a_tree_of_any_depth_is_read_and_written():
  tree = deep_tree(5000)
  assert parse(bracketed(tree)) == [tree]
  assert delinearize(linearize(tree), tree.words) == without_tags(tree)
  unclosed = delinearize('(S ' * 5000 + 'XX', ('w0',))
  assert len(unclosed.brackets) == 5000
  assert parse('(S ' * 5000 + '(NN a)' + ')' * 5000)[0].brackets == unclosed.brackets
