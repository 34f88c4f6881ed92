"""Bracketing scores are EVALB's with COLLINS.prm, on cases that were counted by hand."""

import random

import pytest

from tests.tools.parse.random_trees import random_tree
from transformer.tools.parse import bracketing
from transformer.tools.parse.bracketing import Counts
from transformer.tools.parse.linearisation import delinearise, linearise
from transformer.tools.parse.treebank import parse_trees


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
  # The same bracket several times: as many match as both have.
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
  assert (
    bracketing.count(reference, delinearise(output, reference.words).tree) == wanted
  )


def test_scores_of_several_sentences_are_of_their_brackets_together():
  references = [tree_of(text) for text, *_ in CASES]
  answers = [
    delinearise(text, reference.words)
    for (_, text, _), reference in zip(CASES, references, strict=True)
  ]
  result = bracketing.score(references, answers)
  assert [
    sum(counts) for counts in zip(*(counts for *_, counts in CASES), strict=True)
  ] == [
    27,
    40,
    36,
  ]
  assert scores_of(result) == pytest.approx([100 * 54 / 76, 75.0, 67.5])
  assert result['exact'] == pytest.approx(100 * 8 / 16)
  assert result['mended'] == pytest.approx(100 / 16)
  assert result['mends'] == {'missing': 1, 'no tree': 1}


def scores_of(result):
  return [metric['score'] for metric in result['metrics']]


def test_a_tree_is_exactly_itself_and_tags_of_the_output_do_not_count():
  drawn = random.Random(5)
  trees = [random_tree(drawn) for _ in range(100)]
  result = bracketing.score(
    trees, [delinearise(linearise(tree), tree.words) for tree in trees]
  )
  assert scores_of(result) == [100.0] * 3
  assert (result['exact'], result['mended'], result['mends']) == (100.0, 0.0, {})


def test_figures_where_one_tree_or_none_has_brackets():
  assert (
    bracketing.figures([Counts(0, 0, 0)]) == bracketing.figures([]) == [100, 100, 100]
  )
  for counts in ((0, 3, 0), (0, 0, 3)):
    assert bracketing.figures([Counts(*counts)]) == [0, 0, 0]
  assert bracketing.figures([Counts(1, 1, 3), Counts(0, 0, 0)]) == pytest.approx(
    [50, 100 / 3, 100]
  )


def test_short_sentences_are_those_of_at_most_40_words_with_punctuation():
  words = ' '.join(['(NN a)'] * 38 + ['(, ,)'])
  references = [
    tree_of(f'(S (NP {words}) (. .))'),
    tree_of(f'(S (NP {words}) (. .) (NN b))'),
  ]
  answers = [
    delinearise(linearise(references[0]), references[0].words),
    delinearise('', references[1].words),
  ]
  result = bracketing.score(references, answers)
  assert result['short'] == {
    'words': 40,
    'sentences': 1,
    'f1': 100,
    'precision': 100,
    'recall': 100,
  }
  assert scores_of(result)[2] == 50


def test_the_interval_is_of_95_percent_and_the_same_again():
  right, wrong = (delinearise(text, ('a',)) for text in ('(S XX )S', '(NP XX )NP'))
  trees, answers = [tree_of('(S (NN a))')] * 400, [right, wrong] * 200
  result = bracketing.score(trees, answers)
  low, high = result['metrics'][0]['interval_95']
  assert (high - low) / 2 == pytest.approx(100 * 1.96 * (0.25 / 400) ** 0.5, abs=0.5)
  assert result == bracketing.score(trees, answers)
