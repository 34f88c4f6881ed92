"""The alignment error rate is that of its definition, on cases that were counted by hand."""

import numpy as np
import pytest

from transformer.tools.align.error_rate import count, evaluate, more_lines, rates
from transformer.tools.align.links import GoldLinks


def gold(sure, possible=()):
  return GoldLinks(frozenset(sure), frozenset([*sure, *possible]))


A, B, C, D = (0, 0), (1, 1), (1, 2), (2, 2)


@pytest.mark.parametrize(('wanted', 'found', 'scores'), [
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
    (gold([]), [], (0, 100, 100))])
def test_scores_are_as_counted_by_hand(wanted, found, scores):
  assert rates(count(wanted, found)) == pytest.approx(scores)


def random_case(rng):
  cells = [(i, j) for i in range(4) for j in range(5)]
  kinds = rng.integers(0, 4, 20)
  chosen = [each for each in cells if rng.random() < 0.4]
  return gold([each for each, kind in zip(cells, kinds, strict=True) if kind == 0],
              [each for each, kind in zip(cells, kinds, strict=True) if kind == 1]), chosen


def test_scores_of_several_pairs_are_of_their_links_together():
  rng = np.random.default_rng(1)
  cases = [random_case(rng) for _ in range(30)]
  sides = ['a b c d'] * 30, ['p q r s t'] * 30
  result, sentences = evaluate(*sides, *zip(*cases, strict=True))
  moved = gold(*([(i + 9 * n, j) for n, (wanted, _) in enumerate(cases) for i, j in links(wanted)]
                 for links in (lambda each: each.sure, lambda each: each.possible)))
  together = rates(count(moved, [(i + 9 * n, j) for n, (_, found) in enumerate(cases)
                                 for i, j in found]))
  assert [each['score'] for each in result['metrics']] == pytest.approx(together)
  assert [each['name'] for each in result['metrics']] == ['AER', 'precision', 'recall']
  for each in result['metrics']:
    low, high = each['interval_95']
    assert low < each['score'] < high and high - low < 30
  assert result['links'] == {'found': sum(len(found) for _, found in cases),
                             'sure': len(moved.sure), 'possible': len(moved.possible)}
  for each, (wanted, found) in zip(sentences, cases, strict=True):
    assert [each['AER'], each['precision'], each['recall']] == rates(
        count(wanted, found)).tolist()
    assert each['alignment'] == ' '.join(f'{i}-{j}' for i, j in found)
  assert more_lines(result) == [f'  {result["links"]["found"]:,} found, {len(moved.sure):,} sure, '
                                f'{len(moved.possible):,} possible links']
