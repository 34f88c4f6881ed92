"""An evaluation has the loss of all batches, and the scores of all translations."""

import math
import sys

import pytest
import sacrebleu

from transformer.decoding.config import DecodeOptions
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation.scores import CustomMetric
from transformer.experiment.trackers import Sample
from transformer.experiment.validation import Validation, ValidationSet, check_metrics

DECODING = DecodeOptions(bleu_tokenize='none')


def translate(params, sources, decoding, description):
  return [Translation(f'{params[0]} {source}', 0.0, False, ()) for source in sources]


def sums(_, batch):
  return batch


def validation_set(key, batches, pairs, gold=None):
  sources, references = zip(*pairs, strict=True)
  return ValidationSet(key, batches, sources, references, gold or references)


def evaluate(sets, function=None, **options):
  """Evaluates sets with a custom metric, m:f."""
  metric = function and CustomMetric('m:f', function)
  return Validation(sets, translate, DECODING, metric, **options).evaluate(sums, 'X')


def test_an_evaluation_has_a_custom_metric():
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return {'right': [1.0, 0.0, 0.5], 'count': 3}

  batches = [
    {'nll': 6.0, 'weight': 3.0},
    {'nll': 6.0, 'weight': 1.0},
  ]  # Not the mean of means.
  pairs = [('a', 'X a'), ('b', 'y'), ('c', 'z')]
  evaluation = evaluate([validation_set('valid', batches, pairs)], share)
  assert seen == [(['a', 'b', 'c'], ['X a', 'X b', 'X c'], [['X a', 'y', 'z']])]
  values = dict(evaluation.values)
  assert values.pop('valid/bleu') == 0  # There are no four words.
  assert values == {
    'valid/loss': 3.0,
    'valid/perplexity': pytest.approx(math.exp(3.0)),
    'valid/right': 0.5,
    'valid/count': 3.0,
  }
  assert evaluation.samples == [
    Sample('a', 'X a', 'X a'),
    Sample('b', 'y', 'X b'),
    Sample('c', 'z', 'X c'),
  ]


@pytest.mark.parametrize(('count', 'shown'), [(5, '01234'), (6, '024'), (9, '02468')])
def test_samples_are_spread_evenly_over_the_set(count, shown):
  pairs = [(str(number), 'x') for number in range(count)]
  evaluation = evaluate([validation_set('valid', [], pairs)])
  assert evaluation.samples == [Sample(number, 'x', f'X {number}') for number in shown]


@pytest.mark.parametrize('name', ['loss', 'perplexity', 'bleu', 'chrf'])
def test_a_metric_may_not_take_the_name_of_another_measure(name):
  metric = CustomMetric('m:f', lambda *_: {name: 1})
  with pytest.raises(
    UserError,
    match=f"m:f returns '{name}', already the name of another validation metric",
  ):
    check_metrics(metric, '', [('a', 'a')], None)


def fail(*_):
  raise RuntimeError('no\nmemory')


@pytest.mark.parametrize(
  ('function', 'said'),
  [
    (fail, 'RuntimeError: no memory'),
    (lambda *_: sys.exit(3), 'SystemExit: 3'),
    (lambda *_: math.nan, 'finite'),
    (lambda *_: {'bleu': 1.0}, 'another validation metric'),
  ],
)
def test_a_metric_that_fails_during_training_costs_only_itself(function, said, caplog):
  sets = [validation_set('valid', [], [('a b', 'a b'), ('c', 'd')])]
  both, alone = evaluate(sets, function), evaluate(sets)
  (line,) = (record.message for record in caplog.records)
  assert (
    line.startswith('valid: a metric is skipped: ') and 'm:f' in line and said in line
  )
  assert both == alone


def test_an_error_in_a_metric_is_found_before_training():
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return 1.0

  def check(function, best_by=''):
    metric = function and CustomMetric('m:share', function)
    check_metrics(metric, best_by, [('a', 'A'), ('b', 'B'), ('c', 'C')], None)

  check(share, best_by='share')
  assert seen == [(['a', 'b', 'c'], ['B', 'C', 'A'], [['A', 'B', 'C']])]
  with pytest.raises(
    UserError, match="one of bleu, chrf, loss, perplexity, share; got 'comet'"
  ):
    check(share, best_by='comet')
  with pytest.raises(UserError, match='the metric m:share failed: ZeroDivisionError'):
    check(lambda *_: 1 / 0)
  check(None, best_by='talks/chrf')


def test_each_set_is_evaluated_under_its_name_and_the_first_is_shown():
  evaluation = evaluate(
    [
      validation_set('valid', [{'nll': 6.0, 'weight': 3.0}], [('a', 'X a')]),
      validation_set(
        'valid/talks', [{'nll': 3.0, 'weight': 3.0}], [('b', 'y')], ['gold']
      ),
    ],
    lambda *texts: len(texts[2][0][0]),
  )
  assert [*evaluation.values] == [
    f'{key}/{name}'
    for key in ('valid', 'valid/talks')
    for name in ('loss', 'perplexity', 'bleu', 'f')
  ]
  assert [
    evaluation.values[f'{key}/{name}']
    for key in ('valid', 'valid/talks')
    for name in ('loss', 'f')
  ] == [2.0, 3.0, 1.0, 4.0]
  assert evaluation.translations == {'valid': ['X a'], 'valid/talks': ['X b']}
  assert evaluation.samples == [Sample('a', 'X a', 'X a')]


def test_chrf_is_computed_where_it_decides():
  sets = [validation_set('valid', [], [('a', 'a X'), ('b', 'cats')])]
  assert 'valid/chrf' not in evaluate(sets).values
  wanted = sacrebleu.corpus_chrf(['X a', 'X b'], [['a X', 'cats']], word_order=2)
  assert evaluate(sets, has_chrf=True).values['valid/chrf'] == wanted.score
