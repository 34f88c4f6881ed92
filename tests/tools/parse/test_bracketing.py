"""Bracketing scores are EVALB's with COLLINS.prm, on cases that were counted by hand."""

import random

import pytest

from tests.tools.parse.random_trees import random_tree
from transformer.tools.parse import bracketing
from transformer.tools.parse.linearization import delinearize, linearize
from transformer.tools.parse.scores import evalb, f1
from transformer.tools.parse.treebank import bracketed, parse_trees


def tree_of(text):
  (tree,) = parse_trees([text], 'a')
  return tree


# Reference, output, and matched, wanted and found brackets.
CASES = [
  # The same tree; TOP is no bracket that counts.
  ('(TOP (S (NP (NN a)) (VP (VB b))))', '(S (NP XX )NP (VP XX )VP )S', (3, 3, 3)),
  ('(TOP (NN a) (NN b))', '(TOP XX XX )TOP', (0, 0, 0)),
  # Another label, another span.
  ('(S (NP (NN a)) (VP (VB b)))', '(S (NP XX )NP (NP XX )NP )S', (2, 3, 3)),
  ('(S (NP (NN a) (NN b)) (VP (VB c)))', '(S (NP XX )NP (VP XX XX )VP )S', (1, 3, 3)),
  # ADVP is PRT, in both directions; nothing else is.
  ('(S (ADVP (RB a)) (PRT (RP b)))', '(S (PRT XX )PRT (ADVP XX )ADVP )S', (3, 3, 3)),
  ('(S (ADVP (RB a)) (PRT (RP b)))', '(S (ADJP XX )ADJP (PP XX )PP )S', (1, 3, 3)),
  # Punctuation is no word: the spans around it are the same, inside it nothing is left.
  (
    '(S (NP (NN a)) (, ,) (VP (VB b)) (. .))',
    '(S (NP XX XX )NP (VP XX XX )VP )S',
    (3, 3, 3),
  ),
  ("(S (NN a) (: :) (`` ``) ('' ''))", '(S XX (NP XX XX XX )NP )S', (1, 1, 1)),
  ('(S (NP (NN a)) (PRN (-LRB- b)))', '(S (NP XX XX )NP )S', (1, 3, 2)),
  # The same bracket several times: the smaller number of both matches.
  ('(NP (NP (NP (NN a) (NN b))))', '(NP XX XX )NP', (1, 3, 1)),
  ('(NP (NN a) (NN b))', '(NP (NP (NP XX XX )NP )NP )NP', (1, 1, 3)),
  ('(S (NP (S (NN a))))', '(NP (S (S XX )S )S )NP', (3, 3, 3)),  # In any order.
  # Functions and indices are no part of a label; what begins with a hyphen is one, and so is |X.
  (
    '(S (NP (NN a)) (VP (VB b)))',
    '(S-HLN=1 (NP-SBJ-2 XX )NP (VP=2 XX )VP-TMP )S',
    (3, 3, 3),
  ),
  (
    '(S (ADVP-TMP (RB a)) (VP|S (VB b)))',
    '(S (PRT-X XX )PRT-X (VP XX )VP )S',
    (2, 3, 3),
  ),
  (
    '(S (-LRB- (NN a) (NN b)) (NN c))',
    '(S (-LRB- XX XX )-LRB- (-NONE- XX )-NONE- )S',
    (2, 2, 2),
  ),
  # No tree at all.
  ('(S (NP (NN a)) (VP (VB b)))', '', (0, 3, 0)),
]


@pytest.mark.parametrize(('reference', 'output', 'wanted'), CASES)
def test_brackets_are_counted_as_by_hand(reference, output, wanted):
  reference = tree_of(reference)
  assert bracketing.count(reference, delinearize(output, reference.words)) == wanted


def test_scores_of_several_sentences_are_of_their_brackets_together():
  references = [tree_of(text) for text, *_ in CASES]
  found = [
    delinearize(text, reference.words)
    for (_, text, _), reference in zip(CASES, references, strict=True)
  ]
  scores = bracketing.score(references, found)
  assert [
    sum(counts) for counts in zip(*(counts for *_, counts in CASES), strict=True)
  ] == [
    27,
    40,
    36,
  ]
  assert scores == pytest.approx(
    {
      'F1': 100 * 54 / 76,
      'precision': 75.0,
      'recall': 67.5,
      'F1_40': 100 * 54 / 76,
      'exact': 100 * 8 / 16,
    }
  )


def test_a_tree_is_exactly_itself_and_tags_of_the_output_do_not_count():
  drawn = random.Random(5)
  trees = [random_tree(drawn) for _ in range(100)]
  lines = [linearize(tree) for tree in trees]
  sources = [' '.join(tree.words) for tree in trees]
  found = evalb(sources, lines, [list(map(bracketed, trees))])
  assert set(found.values()) == {0.0, 100.0} and found['repaired'] == 0.0
  lines[3] += ' XX'  # a word too many
  assert evalb(sources, lines, [list(map(bracketed, trees))])['repaired'] == 1.0


def test_scores_where_one_tree_or_none_has_brackets():
  nothing = tree_of('(TOP (. .))')
  assert set(bracketing.score([nothing], [nothing]).values()) == {100.0}
  some = tree_of('(S (NN a))')
  assert f1(['a'], [''], [['(S (NN a))']]) == 0.0
  for trees in ([some], [tree_of('(TOP (NN a))')]), ([tree_of('(TOP (NN a))')], [some]):
    scores = bracketing.score(*trees)
    assert (scores['F1'], scores['precision'], scores['recall']) == (0.0, 0.0, 0.0)


def test_short_sentences_have_at_most_40_words_with_punctuation():
  words = ' '.join(['(NN a)'] * 38 + ['(, ,)'])
  references = [
    tree_of(f'(S (NP {words}) (. .))'),
    tree_of(f'(S (NP {words}) (. .) (NN b))'),
  ]
  found = [references[0], delinearize('', references[1].words)]
  scores = bracketing.score(references, found)
  assert scores['F1_40'] == 100 and scores['recall'] == 50
