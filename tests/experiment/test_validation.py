"""An evaluation has the loss of all batches, and the scores of all translations."""

import math

import pytest

from transformer.evaluation.own_metrics import OwnMetric
from transformer.experiment.validation import evaluate, make_validation
from transformer.inference.translator import Translation


def test_an_evaluation_has_a_metric_of_ones_own():
  seen = []

  def share(sources, translations, references):
    seen.append((sources, translations, references))
    return {'right': [1.0, 0.0, 0.5], 'count': 3}

  def translate(params, sources):
    return [Translation(f'{params} {source}', 0.0, False, ()) for source in sources]

  validate = make_validation(translate, ['a', 'b', 'c'], ['X a', 'y', 'z'], 'none', None,
                             own_metric=OwnMetric('m:share', share))
  batches = [{'nll': 6.0, 'weight': 3.0}, {'nll': 2.0, 'weight': 1.0}]
  values, validation = evaluate(lambda _, batch: batch, validate, 'X', batches)
  assert seen == [(['a', 'b', 'c'], ['X a', 'X b', 'X c'], [['X a', 'y', 'z']])]
  assert values == {'valid/loss': 2.0, 'valid/perplexity': pytest.approx(math.exp(2.0)),
                    'valid/bleu': validation.bleu, 'valid/right': 0.5, 'valid/count': 3.0}
