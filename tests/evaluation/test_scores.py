"""Custom metrics are called with the text, and an error in one is one line."""

import math

import numpy as np
import pytest

from transformer.errors import UserError
from transformer.evaluation.scores import CustomMetric, custom_scores

TEXT = ['a', 'b', 'c'], ['A', 'x', 'C'], [['A', 'B', 'C'], ['1', '2', '3']]


def scores(function):
  return custom_scores(CustomMetric('m:f', function), *TEXT)


def test_numbers_of_sentences_have_their_mean_and_an_interval():
  values = np.random.default_rng(0).normal(3.0, 2.0, 400)
  metric = CustomMetric('m:f', lambda *_: values)
  (score,) = custom_scores(metric, *(['x'] * 400,) * 2, [['x'] * 400])
  assert (
    score.score == pytest.approx(values.mean()) and score.sentences == values.tolist()
  )
  half = 1.96 * values.std() / math.sqrt(400)
  wanted = values.mean() - half, values.mean() + half
  np.testing.assert_allclose(score.interval, wanted, atol=0.05)
  (score,) = scores(lambda *_: [0.0, 0.0, 1.0])
  assert score.interval == (0.0, 1.0)


@pytest.mark.parametrize(
  'value',
  [
    None,
    'high',
    math.nan,
    [1.0, 2.0],
    [1.0, 2.0, math.inf],
    [1.0, 2.0, 'x'],
    {'p': None},
  ],
)
def test_an_invalid_score_is_rejected(value):
  with pytest.raises(
    UserError,
    match='the metric m:f must return a finite number, or one for each of the 3 translations',
  ):
    scores(lambda *_: value)
