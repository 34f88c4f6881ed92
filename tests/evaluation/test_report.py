"""Tests of reports: what is printed and written of scores."""

import errno
import io
import json
import types

import pytest

from transformer.config import Config
from transformer.decoding.config import SampleConfig
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation import report, results, scores
from transformer.evaluation.texts import Text

DECODING = results.Decoding(SampleConfig(), 0, [])
TEXT = Text('test', ['a b c d'], [['w x y z']])


@pytest.mark.parametrize('failure', [OSError(errno.ENOSPC, 'No space left'),
                                     BrokenPipeError(errno.EPIPE, 'Broken pipe')], ids=str)
def test_scores_that_cannot_be_printed_are_kept_and_only_an_early_end_of_the_reader_is_no_mistake(
    tmp_path, monkeypatch, failure):
  class Unwritable(io.StringIO):
    def write(self, _):
      raise failure

  place = results.Place(tmp_path, 'test', results.describe([5], DECODING))
  run = types.SimpleNamespace(workdir=tmp_path, steps=[5], config=Config())
  monkeypatch.setattr(report, 'training_cost', lambda *_: None)

  def score():
    answers = [Translation('w x y z', -1.0, False, (('w x y z', -1.0),))]
    stages = scores.evaluate(TEXT, answers, 1.0, '13a', 'de')
    return report.report(place, run, TEXT, DECODING, report.Scored(stages, 1.0, lambda _: []),
                         Unwritable())

  if isinstance(failure, BrokenPipeError):
    assert round(score()['BLEU']) == 100
  else:
    with pytest.raises(UserError, match=r'cannot be printed: No space left; .*test\.step5'):
      score()
  kept = json.loads((tmp_path / f'{place.stem}.json').read_text('utf-8'))
  assert [metric['name'] for metric in kept['metrics']] == ['BLEU', 'chrF2++', 'TER']
