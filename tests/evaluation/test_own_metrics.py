"""Metrics of one's own are called with the text, and a mistake in one is one line."""

import math

import numpy as np
import pytest

from transformer.errors import UserError
from transformer.evaluation.own_metrics import OwnMetric, load_metric, own_scores
from transformer.evaluation.resampling import interval_95

TEXT = ['a', 'b', 'c'], ['A', 'x', 'C'], [['A', 'B', 'C'], ['1', '2', '3']]


def scores(function):
  return own_scores(OwnMetric('m:f', function), *TEXT)


def test_a_metric_sees_sources_translations_and_references():
  seen = []
  score, = scores(lambda *text: seen.append(text) or 0.5)
  assert seen == [TEXT]
  assert score == ('f', 0.5, None, None)


def test_numbers_of_sentences_have_their_mean_and_an_interval():
  values = np.random.default_rng(0).normal(3.0, 2.0, 400)
  metric = OwnMetric('m:f', lambda *_: values)
  score, = own_scores(metric, *(['x'] * 400,) * 2, [['x'] * 400])
  assert score.score == pytest.approx(values.mean()) and score.sentences == values.tolist()
  half = 1.96 * values.std() / math.sqrt(400)
  wanted = values.mean() - half, values.mean() + half
  np.testing.assert_allclose(score.interval, wanted, atol=0.05)


def test_an_interval_of_few_sentences_is_made_of_their_samples():
  score, = scores(lambda *_: [0.0, 0.0, 1.0])
  assert score.interval == (0.0, 1.0)
  samples = np.sort(np.random.default_rng(0).normal(size=1000))
  assert set(interval_95(samples)) <= set(samples)


def test_a_dict_has_several_scores():
  found = scores(lambda *_: {'p': 1, 'q': (1.0, 0.0, 0.5)})
  assert [(each.name, each.score) for each in found] == [('p', 1.0), ('q', 0.5)]


@pytest.mark.parametrize('value', [None, 'high', math.nan, [1.0, 2.0], [1.0, 2.0, math.inf],
                                   [1.0, 2.0, 'x'], {'p': None}])
def test_what_is_no_score_is_refused(value):
  with pytest.raises(UserError, match='the metric m:f must return a finite number, or one for each '
                                      'of the 3 translations'):
    scores(lambda *_: value)


def test_a_failure_is_one_line():
  def fail(*_):
    raise ValueError('x\ny')
  with pytest.raises(UserError, match=r'^the metric m:f failed: ValueError: x y$'):
    scores(fail)


def test_a_metric_is_found_in_the_working_directory(tmp_path, monkeypatch):
  (tmp_path / 'found_here.py').write_text('def f(*_):\n  return 7\nnumber = 3\n')
  (tmp_path / 'broken_here.py').write_text('import nothing_of_this_name\n')
  (tmp_path / 'leaves_here.py').write_text('raise SystemExit(2)\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr('sys.path', ['/nowhere'])
  assert load_metric('found_here:f').function() == 7
  for spec, fact in (('found_here', 'must be given as MODULE:NAME'),
                     ('found_here:g', 'got none'),
                     ('found_here:number', 'got 3'),
                     ('broken_here:f', "No module named 'nothing_of_this_name'"),
                     ('leaves_here:f', 'cannot be imported: SystemExit: 2'),
                     ('not_here:f', f'or lie in {tmp_path}')):
    with pytest.raises(UserError, match=fact):
      load_metric(spec)
