"""BLEU comes first, and a metric that fails is left out and costs nothing else."""

import io
from unittest import mock

import pytest

from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation import report
from transformer.evaluation.eval_sets import EvalSet
from transformer.evaluation.scores import CustomMetric

SOURCES = ['Eine Katze.', 'Zwei Hunde laufen.', 'Drei Vögel singen heute.'] * 4
REFERENCES = [
  'A cat is here.',
  'Two dogs run fast.',
  'Three birds sing well today.',
] * 4
GOOD = ['A cat is here.', 'Two dogs run fast.', 'Three birds sing today.'] * 4


def evaluated(
  *custom_metrics, translations=GOOD, references=REFERENCES, gold=None, seconds=1.0
):
  """Returns all stages of an evaluation, as the names of its metrics; and the last one."""
  answers = [Translation(text, -1.0, False, ((text, -1.0),)) for text in translations]
  stages, latest = [], None
  eval_set = EvalSet('test', SOURCES[: len(answers)], [references], gold)
  for latest in report.evaluate(eval_set, answers, seconds, '13a', custom_metrics):
    stages.append([row['name'] for row in latest[0]['metrics']])
  return stages, *latest


def test_sacrebleus_metrics_come_first():
  stages, result, sentences = evaluated(CustomMetric('m:f', lambda *_: 7.0))
  assert stages[0] == ['BLEU', 'chrF2++'] and stages[-1] == ['BLEU', 'chrF2++', 'f']
  assert (
    result['failed_metrics'] == [] and result['bleu'] == result['metrics'][0]['score']
  )
  assert result['metrics'][0]['signature'] == result['signature']
  assert [row['translation'] for row in sentences] == GOOD


def test_ratios_are_of_translations_to_references_and_of_sentences_to_seconds():
  _, result, _ = evaluated(
    translations=['a b c', 'd'], references=['a b c d', 'd e f g'], seconds=4.0
  )
  assert result['sentences_per_second'] == 2 / 4
  assert 'ratio = 0.5' in result['details']


@pytest.mark.parametrize(
  ('count', 'shown'), [(0, ''), (2, 'ac'), (3, 'abc'), (9, 'abcd')]
)
def test_examples_are_spread_evenly_over_the_text(count, shown):
  eval_set, stream = EvalSet('test', [*'abcd'], [[*'ABCD']]), io.StringIO()
  answers = [Translation(f'{line}!', -1.0, False, ()) for line in eval_set.sources]
  report.show_examples(eval_set, answers, count, stream)
  assert stream.getvalue().split() == [
    word
    for line in shown
    for word in ('source', line, 'reference', line.upper(), 'translation', f'{line}!')
  ]


def test_custom_metrics_get_the_gold_of_a_text_that_has_some():
  seen = []

  def note(sources, translations, references):
    seen.append((sources, references))
    return 1.0

  gold = [f'({line})' for line in REFERENCES]
  _, result, _ = evaluated(CustomMetric('m:note', note), gold=gold)
  assert seen == [(SOURCES, [gold])]
  _, plain, _ = evaluated(CustomMetric('m:note', note))
  assert seen[1:] == [(SOURCES, [REFERENCES])] and result == plain


def leave(*_):
  raise SystemExit(3)


@pytest.mark.parametrize(
  ('function', 'fact'),
  [
    (lambda *_: 1 / 0, 'ZeroDivisionError'),
    (leave, 'SystemExit: 3'),
    (lambda *_: [1.0], 'finite number'),
    (lambda *_: {'fine': 1.0, 'BLEU': 2.0}, "returns 'BLEU', already"),
    (lambda *_: {'source': 1.0}, "returns 'source'"),
    (lambda *_: {'step': 1.0}, "returns 'step'"),
    (lambda *_: {'good': 1.0}, "returns 'good'"),
  ],
)
def test_a_metric_that_fails_costs_nothing_but_itself(function, fact, caplog):
  good = CustomMetric(
    'm:good', lambda _, lines, __: [float(len(line)) for line in lines]
  )
  wrong = CustomMetric('m:wrong', function)
  last = CustomMetric('m:last', lambda *_: 3.0)
  stages, result, sentences = evaluated(good, wrong, last)
  assert stages[-1] == ['BLEU', 'chrF2++', 'good', 'last']
  assert result['failed_metrics'] == caplog.messages
  (warning,) = caplog.messages
  assert warning.startswith('the metric m:wrong is skipped') and fact in warning
  assert sentences[0]['good'] == len(GOOD[0]) and 'fine' not in sentences[0]


@pytest.mark.parametrize('full', [True, False])
def test_all_scores_are_written_or_printed_where_one_of_both_fails(full):
  result = mock.Mock(content={'text': 'valid', 'steps': [3]}, variant={'step': '3'})
  stream = mock.Mock()
  error = UserError('the disk is full') if full else BrokenPipeError()
  (result if full else stream).write.side_effect = error
  rows = [{'name': name, 'score': 1.0, 'signature': name} for name in ('BLEU', 'own')]
  stages = [({'metrics': rows[:count], 'seconds': 1.0}, []) for count in (1, 2)]
  with pytest.raises(type(error)):
    report.write_and_print(result, stages, stream)
  if full:
    assert any('own' in call.args[0] for call in stream.write.call_args_list)
  else:
    assert [call.args for call in result.write.call_args_list] == stages
