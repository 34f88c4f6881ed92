"""Which evaluation is the best, and when a run stops waiting."""

import math

import pytest

from transformer.runs.evaluations import (
  best_evaluation,
  is_out_of_patience,
  selection_metric,
)


def evaluations(bleu, losses):
  return [
    {'step': 20 * number, 'valid/bleu': float(score), 'valid/loss': loss}
    for number, (score, loss) in enumerate(zip(bleu, losses, strict=True), 1)
  ]


@pytest.mark.parametrize(
  ('bleu', 'losses', 'step'),
  [
    ([5, 9, 7], [3.0, 2.0, 1.0], 40),  # BLEU decides first,
    ([5, 9, 9, 9], [3.0, 2.0, 1.5, 1.7], 60),  # then the loss,
    ([9, 9], [2.0, 2.0], 20),  # and then the order.
    ([0.3, 0.0, 0.1, 0.2], [5.0, 4.0, 3.0, 3.5], 60),  # BLEU below 1 does not count.
    ([0.9, 1.0, 0.0], [2.0, 5.0, 1.0], 40),
    ([0.0, 0.0, 0.0], [math.nan, 4.0, math.inf], 40),
    ([0.0, math.nan, 0.0], [5.0, 4.0, 4.5], 40),
  ],
)
def test_the_best_has_the_highest_bleu_and_then_the_lowest_loss(bleu, losses, step):
  assert best_evaluation(evaluations(bleu, losses))['step'] == step


@pytest.mark.parametrize(
  ('best_by', 'values', 'step'),
  [
    ('loss', [2.0, 1.0, 3.0], 40),
    ('perplexity', [9.0, math.nan, 7.0], 60),
    ('bleu', [2.0, 1.0, 3.0], 60),
    ('comet', [-0.2, -0.1, math.nan], 40),
    ('f1', [60.0, 80.0, 0.5], 40),
  ],
)
def test_another_metric_decides_where_the_history_says_so(best_by, values, step):
  history = [
    {**row, f'valid/{best_by}': value, 'best_by': best_by}
    for row, value in zip(evaluations([9, 5, 7], [4.0] * 3), values, strict=True)
  ]
  assert best_evaluation(history)['step'] == step
  assert is_out_of_patience(history, 1) == (step < 60)
  name, value = selection_metric(history[0])
  assert (
    name == {'bleu': 'BLEU', 'f1': 'F1'}.get(best_by, best_by) and value == values[0]
  )


@pytest.mark.parametrize(
  ('best_by', 'name', 'step'),
  [
    ('bleu', 'BLEU', 40),
    ('talks/bleu', 'talks BLEU', 60),
    ('talks/loss', 'talks loss', 20),
    ('a/b/chrf', 'a/b chrF2++', 80),
  ],
)
def test_another_validation_set_decides_by_its_own_loss_too(best_by, name, step):
  history = [
    {
      **row,
      'best_by': best_by,
      'valid/talks/bleu': bleu,
      'valid/talks/loss': loss,
      'valid/a/b/chrf': 1.0 + bleu // 9,
      'valid/a/b/loss': 9.0 - loss,
    }
    for row, bleu, loss in zip(
      evaluations([5, 9, 7, 6], [4.0, 3.0, 1.0, 2.0]),
      (2.0, 8.0, 8.5, 8.5),
      (1.0, 4.0, 2.0, 5.0),
      strict=True,
    )
  ]
  best = best_evaluation(history)
  assert best['step'] == step
  assert selection_metric(best) == (name, best[f'valid/{best_by}'])


def test_patience_lasts_while_bleu_is_near_0_and_the_loss_falls():
  losses = [6.0 - 0.1 * number for number in range(30)]
  history = evaluations([0.01] * 30, losses)
  assert not any(is_out_of_patience(history[:count], 1) for count in range(31))
  # From a BLEU of 1 on, a falling loss is not enough.
  history = evaluations([0.01] * 5 + [8.0] + [7.0] * 24, losses)
  assert [is_out_of_patience(history[:count], 3) for count in (8, 9)] == [False, True]


def test_patience_is_the_number_of_evaluations_since_the_best():
  assert best_evaluation([]) is None and not is_out_of_patience([], 3)
  history = evaluations(
    [0, 0.5, 3, 3, 2, 0, 0.5, 3, 3], [4, 3, 5, 3.5, 2, 2.5, 6, 2, 1]
  )
  for count in range(1, 10):
    since = count - 1 - history.index(best_evaluation(history[:count]))
    for patience in range(1, 10):
      assert is_out_of_patience(history[:count], patience) == (since >= patience)
    assert not is_out_of_patience(history[:count], 0)
