"""An evaluation has the loss of all batches, and the scores of all translations."""

import math
import sys

import pytest
import sacrebleu

from transformer.config import Config
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation.own_metrics import OwnMetric, own_scores
from transformer.experiment.reporting import Sample
from transformer.experiment.validation import (
  Validation,
  ValidationSet,
  check_metrics,
  evaluate,
  make_validation,
  validation_metrics,
)


def test_an_evaluation_has_a_metric_of_ones_own():
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return {'right': [1.0, 0.0, 0.5], 'count': 3}

  def translate(params, sources, progress):
    return [Translation(f'{params} {source}', 0.0, False, ()) for source in sources]

  validate = make_validation(translate, ['a', 'b', 'c'], ['X a', 'y', 'z'], 'none', None,
                             metrics=[OwnMetric('m:share', share)])
  batches = [{'nll': 6.0, 'weight': 3.0}, {'nll': 6.0, 'weight': 1.0}]  # Not the mean of means.
  values, validations = evaluate(lambda _, batch: batch, 'X',
                                 [ValidationSet('valid', batches, validate)])
  assert seen == [(['a', 'b', 'c'], ['X a', 'X b', 'X c'], [['X a', 'y', 'z']])]
  assert values == {'valid/loss': 3.0, 'valid/perplexity': pytest.approx(math.exp(3.0)),
                    'valid/bleu': validations['valid'].bleu, 'valid/right': 0.5, 'valid/count': 3.0}
  assert validations['valid'].samples == [Sample('a', 'X a', 'X a'), Sample('b', 'y', 'X b'),
                                          Sample('c', 'z', 'X c')]


class Pairs(list):
  """A corpus."""

  gold = None


@pytest.mark.parametrize('name', ['loss', 'perplexity', 'bleu', 'chrf'])
def test_a_metric_may_not_take_the_name_of_another_measure(name):
  metric, config = OwnMetric('m:f', lambda *_: {name: 1}), Config.from_dict({})
  with pytest.raises(UserError, match=f"m:f gives '{name}', which is the name of another measure"):
    check_metrics([metric], config, Pairs([('a', 'a')]), begun=False)


def fail(*_):
  raise RuntimeError('no\nmemory')


@pytest.mark.parametrize(('function', 'said'), [
    (fail, 'RuntimeError: no memory'), (lambda *_: sys.exit(3), 'SystemExit: 3'),
    (lambda *_: math.nan, 'finite'), (lambda *_: [1.0], 'finite'), (lambda *_: None, 'finite'),
    (lambda *_: {'bleu': 1.0}, 'another measure')])
def test_a_metric_that_fails_during_training_costs_only_itself(function, said):
  def validate(attend, metrics):
    return make_validation(lambda params, sources, progress: [
        Translation(each, 0.0, False, ()) for each in sources],
                           ['a b', 'c'], ['a b', 'd'], 'none', attend, metrics=metrics)(0)

  fine = OwnMetric('m:g', lambda *_: 2.0)
  attention, metric = 'the attention was not drawn: RuntimeError: no memory', 'm:f'
  validation = validate(fail, [OwnMetric(metric, function), fine])
  assert validation.failures[0] == attention
  assert metric in validation.failures[1] and said in validation.failures[1]
  assert validation._replace(failures=[]) == validate(None, [fine])


def test_a_mistake_in_a_metric_is_found_before_training(caplog):
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return 1.0

  def check(function, begun=False, **settings):
    check_metrics([OwnMetric('m:share', function)], Config.from_dict({
        'train': {'valid_metric': 'm:share', **settings}}),
        Pairs([('a', 'A'), ('b', 'B'), ('c', 'C')]), begun)

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
  def translations_of(bleu):
    return lambda params: Validation(bleu, [Sample(params, '', '')], more={'chrf': 2 * bleu})

  sets = [ValidationSet('valid', [{'nll': 6.0, 'weight': 3.0}], translations_of(11.0)),
          ValidationSet('valid/talks', [{'nll': 3.0, 'weight': 3.0}], translations_of(7.0))]
  values, validations = evaluate(lambda params, batch: batch, 'X', sets)
  assert list(values.items()) == [
      ('valid/loss', 2.0), ('valid/perplexity', math.exp(2.0)), ('valid/bleu', 11.0),
      ('valid/chrf', 22.0), ('valid/talks/loss', 1.0), ('valid/talks/perplexity', math.exp(1.0)),
      ('valid/talks/bleu', 7.0), ('valid/talks/chrf', 14.0)]
  assert {key: each.bleu for key, each in validations.items()} == {
      'valid': 11.0, 'valid/talks': 7.0}


def test_chrf_is_computed_where_it_decides():
  def metrics(**settings):
    return validation_metrics(Config.from_dict({'train': settings, 'data': {
        'valid': ('news', 'talks')}}))

  assert metrics() == metrics(best_by='bleu') == []
  for best_by in ('chrf', 'talks/chrf'):
    metric, = metrics(best_by=best_by)
    score, = own_scores(metric, ['x', 'y'], ['a red dog', 'cats'], [['a red dog .', 'a cat']])
    wanted = sacrebleu.corpus_chrf(['a red dog', 'cats'], [['a red dog .', 'a cat']], word_order=2)
    assert (score.name, score.score) == ('chrf', wanted.score)
