"""An evaluation has the loss of all batches, and the scores of all translations."""

import functools
import math
import sys

import pytest
import sacrebleu

from transformer.config import Config
from transformer.decoding.config import Decoding
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation.scores import OwnMetric
from transformer.experiment.reporters import Sample
from transformer.experiment.validation import (
  ValidationSet,
  _scores,
  check_metrics,
  evaluate,
  validation_metrics,
)

DECODING = Decoding(bleu_tokenize='none')


def translate(params, sources, decoding, description):
  return [Translation(f'{params[0]} {source}', 0.0, False, ()) for source in sources]


def sums(_, batch):
  return batch


def own(function, name='m:f'):
  """Returns a metric of one's own."""
  return functools.partial(_scores, OwnMetric(name, function))


def test_an_evaluation_has_a_metric_of_ones_own():
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return {'right': [1.0, 0.0, 0.5], 'count': 3}

  batches = [{'nll': 6.0, 'weight': 3.0}, {'nll': 6.0, 'weight': 1.0}]  # Not the mean of means.
  pairs = [('a', 'X a'), ('b', 'y'), ('c', 'z')]
  evaluation = evaluate(
    sums, 'X', [ValidationSet('valid', batches, pairs)], translate, DECODING, [own(share)]
  )
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


def test_without_any_reference_there_is_a_warning_and_no_score(caplog):
  config = Config.from_dict({'train': {'best_by': 'chrf'}})
  for references, compares in (('', ' '), False), (('', '\u200b'), False), (('', 'b'), True):
    caplog.clear()
    pairs = list(zip('ab', references, strict=True))
    sets = [ValidationSet('valid', [{'nll': 6.0, 'weight': 3.0}], pairs)]
    evaluation = evaluate(sums, 'X', sets, translate, DECODING, validation_metrics(config))
    for name in ('bleu', 'chrf'):
      assert math.isfinite(evaluation.values[f'valid/{name}']) == compares
    assert ('valid: every reference is empty' in caplog.text) != compares
    assert evaluation.values['valid/loss'] == 2.0


@pytest.mark.parametrize(('count', 'shown'), [(5, '01234'), (6, '024'), (9, '02468')])
def test_samples_are_spread_evenly_over_the_set(count, shown):
  pairs = [(str(number), 'x') for number in range(count)]
  evaluation = evaluate(sums, 'X', [ValidationSet('valid', [], pairs)], translate, DECODING, [])
  assert evaluation.samples == [Sample(number, 'x', f'X {number}') for number in shown]


class Pairs(list):
  """A corpus."""

  gold = None


@pytest.mark.parametrize('name', ['loss', 'perplexity', 'bleu', 'chrf'])
def test_a_metric_may_not_take_the_name_of_another_measure(name):
  metric, config = own(lambda *_: {name: 1}), Config.from_dict({})
  with pytest.raises(UserError, match=f"m:f gives '{name}', which is the name of another measure"):
    check_metrics([metric], config, Pairs([('a', 'a')]), begun=False)


def fail(*_):
  raise RuntimeError('no\nmemory')


@pytest.mark.parametrize(
  ('function', 'said'),
  [
    (fail, 'RuntimeError: no memory'),
    (lambda *_: sys.exit(3), 'SystemExit: 3'),
    (lambda *_: math.nan, 'finite'),
    (lambda *_: {'bleu': 1.0}, 'another measure'),
  ],
)
def test_a_metric_that_fails_during_training_costs_only_itself(function, said, caplog):
  fine = own(lambda *_: 2.0, 'm:g')
  both, alone = (
    evaluate(
      sums,
      'X',
      [ValidationSet('valid', [], [('a b', 'a b'), ('c', 'd')])],
      translate,
      DECODING,
      metrics,
    )
    for metrics in ([own(function), fine], [fine])
  )
  (line,) = (record.message for record in caplog.records)
  assert line.startswith('valid: a metric is left out: ') and 'm:f' in line and said in line
  assert both == alone


def test_a_mistake_in_a_metric_is_found_before_training(caplog):
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return 1.0

  def check(function, begun=False, **settings):
    check_metrics(
      [own(function, 'm:share')],
      Config.from_dict({'train': {'valid_metric': 'm:share', **settings}}),
      Pairs([('a', 'A'), ('b', 'B'), ('c', 'C')]),
      begun,
    )

  check(share, best_by='share')
  assert seen == [(['a', 'b', 'c'], ['B', 'C', 'A'], [['A', 'B', 'C']])]
  with pytest.raises(UserError, match="one of bleu, loss, perplexity, share; got 'comet'"):
    check(share, best_by='comet')
  with pytest.raises(UserError, match='the metric m:share failed: ZeroDivisionError'):
    check(lambda *_: 1 / 0)
  # A run that goes on needs only what decides.
  check(lambda *_: 1 / 0, begun=True)
  assert 'the metric m:share failed: ZeroDivisionError' in caplog.text
  with pytest.raises(UserError, match="one of bleu, loss, perplexity; got 'share'"):
    check(lambda *_: 1 / 0, begun=True, best_by='share')
  config = Config.from_dict({'train': {'best_by': 'chrf'}})
  check_metrics(validation_metrics(config), config, Pairs([('a', 'A')]), begun=False)


def test_each_set_is_evaluated_under_its_name_and_the_first_is_shown():
  evaluation = evaluate(
    sums,
    'X',
    [
      ValidationSet('valid', [{'nll': 6.0, 'weight': 3.0}], [('a', 'X a')]),
      ValidationSet('valid/talks', [{'nll': 3.0, 'weight': 3.0}], [('b', 'y')], ['gold']),
    ],
    translate,
    DECODING,
    [own(lambda *texts: len(texts[2][0][0]))],
  )
  assert [*evaluation.values] == [
    f'{key}/{name}'
    for key in ('valid', 'valid/talks')
    for name in ('loss', 'perplexity', 'bleu', 'f')
  ]
  assert [
    evaluation.values[f'{key}/{name}'] for key in ('valid', 'valid/talks') for name in ('loss', 'f')
  ] == [2.0, 3.0, 1.0, 4.0]
  assert evaluation.translations == {'valid': ['X a'], 'valid/talks': ['X b']}
  assert evaluation.samples == [Sample('a', 'X a', 'X a')]


def test_chrf_is_computed_where_it_decides():
  def metrics(**settings):
    return validation_metrics(
      Config.from_dict({'train': settings, 'data': {'valid': ('news', 'talks')}})
    )

  assert metrics() == metrics(best_by='bleu') == []
  for best_by in ('chrf', 'talks/chrf'):
    (metric,) = metrics(best_by=best_by)
    wanted = sacrebleu.corpus_chrf(['a red dog', 'cats'], [['a red dog .', 'a cat']], word_order=2)
    assert metric(['x', 'y'], ['a red dog', 'cats'], ['a red dog .', 'a cat'], None) == {
      'chrf': wanted.score
    }
