"""The alignment error rate is that of its definition, on cases that were counted by hand."""

import pytest

from transformer.tools.align.error_rate import count, evaluate, more_lines, rates
from transformer.tools.align.links import GoldLinks


def gold(sure, possible=()):
  return GoldLinks(frozenset(sure), frozenset([*sure, *possible]))


A, B, C, D = (0, 0), (1, 1), (1, 2), (2, 2)


@pytest.mark.parametrize(
  ('wanted', 'links', 'scores'),
  [
    (gold([A, B, D]), [A, B, D], (0, 100, 100)),
    (gold([A, B]), [C, D], (100, 0, 0)),
    # All that is found is possible, and all that is sure is found: no error.
    (gold([A], [B, C]), [A, B], (0, 100, 100)),
    # A link that is possible and not sure counts for precision, not for recall.
    (gold([A, B], [C]), [A, C], (25, 100, 50)),
    (gold([A, D], [B]), [A, B, C], (40, 200 / 3, 50)),
    (gold([A]), [A, A], (0, 100, 100)),
    # Nothing sure, nothing found, or neither.
    (gold([], [A]), [A, B], (50, 50, 100)),
    (gold([A]), [], (100, 100, 0)),
    (gold([]), [], (0, 100, 100)),
  ],
)
def test_scores_are_as_counted_by_hand(wanted, links, scores):
  assert rates(count(wanted, links)) == pytest.approx(scores)


def test_scores_of_several_pairs_are_of_their_links_together():
  cases = [
    (gold([A, B], [C]), [A, C]),
    (gold([A, D], [B]), [A, B, C]),
    (gold([B]), [B]),
  ] * 5
  result, sentences = evaluate(
    ['a b c'] * 15, ['p q r'] * 15, *zip(*cases, strict=True)
  )
  # 30 links; of 25 sure links 15 are linked, and of the possible ones 25.
  assert [row['score'] for row in result['metrics']] == pytest.approx(
    [100 * (1 - 40 / 55), 100 * 25 / 30, 60]
  )
  assert [row['name'] for row in result['metrics']] == ['AER', 'precision', 'recall']
  assert all(
    low < row['score'] < high
    for row in result['metrics']
    for low, high in [row['interval_95']]
  )
  for sentence, (wanted, links) in zip(sentences, cases, strict=True):
    assert [sentence['AER'], sentence['precision'], sentence['recall']] == rates(
      count(wanted, links)
    ).tolist()
    assert sentence['alignment'] == ' '.join(f'{i}-{j}' for i, j in links)
  assert more_lines(result) == ['  30 found, 25 sure, 35 possible links']
