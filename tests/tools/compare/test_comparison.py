"""Systems are compared only on the same text, with the deviation over their seeds."""

import functools
import json
import types

import pytest

from tests.evaluation.test_report import GOOD, REFERENCES, SOURCES
from transformer.config import Config
from transformer.decoding.config import DecodeOptions
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation import report, results
from transformer.evaluation.eval_sets import EvalSet
from transformer.tools.compare import comparison, scored_runs, significance

POOR = ['The cat.', 'Two dogs run.', 'Birds.'] * 4


def write(
  root,
  name,
  translations,
  references=REFERENCES,
  step=5,
  seed=0,
  average=1,
  folder='eval',
  **decode,
):
  """Writes the scores of translations like a run; returns the run's directory."""
  answers = [Translation(text, -1.0, False, ((text, -1.0),)) for text in translations]
  steps = [*range(step - average + 1, step + 1)]
  run = types.SimpleNamespace(
    workdir=root / name, checkpoint_steps=steps, config=Config()
  )
  eval_set = EvalSet(
    'test', SOURCES[: len(translations)], [references[: len(translations)]]
  )
  decoding = DecodeOptions(seed=seed, **decode)
  *_, written = report.evaluate(eval_set, answers, 1.0, decoding.bleu_tokenize)
  (run.workdir / folder).mkdir(parents=True, exist_ok=True)
  results.new_result(
    run.workdir / folder, results.metadata(eval_set, [run], decoding)
  ).write(*written)
  return str(run.workdir)


@pytest.fixture
def score(tmp_path):
  return functools.partial(write, tmp_path)


@pytest.fixture
def untested(monkeypatch):
  """Replaces the significance tests, which take most of the time."""
  monkeypatch.setattr(
    significance,
    'p_values',
    lambda name, systems, *more: [1.0 for _ in systems[1:]],
  )


def compared(*systems, allow=False):
  return comparison.compare(scored_runs.read(systems, 'test'), allow)


def taken(both):
  rows = [row for system in both['systems'].values() for row in system['results']]
  return [row['name'] for row in rows]


def test_systems_are_compared_over_their_seeds(score):
  poor, good = (
    [score('a', POOR), score('b', GOOD)],
    [score('c', GOOD), score('d', GOOD)],
  )
  both = compared(','.join(poor), ','.join(good))
  assert both['sentences'] == 12
  scores = both['systems'][','.join(poor)]['scores']['BLEU']
  assert scores['mean'] == pytest.approx(sum(scores['seeds']) / 2)
  assert scores['deviation'] == pytest.approx(
    abs(scores['seeds'][0] - scores['seeds'][1]) / 2**0.5
  )
  assert both['systems'][','.join(good)]['scores']['BLEU']['deviation'] == 0
  p = both['systems'][','.join(good)]['p']
  assert p['BLEU'] < 0.05 and both['systems'][','.join(poor)]['p'] == {}
  text = '\n'.join(comparison.as_table(both))
  assert f'{scores["mean"]:.2f} ± {scores["deviation"]:.2f}' in text
  assert f'{p["BLEU"]:.4f}' in text and 'tok:13a' in text


def test_incomparable_metrics_are_omitted(score, untested, tmp_path):
  systems = [score('a', POOR), score('b', GOOD)]
  for name, comet in (('a', 'm:comet'), ('b', 'm:comet2')):
    (path,) = (tmp_path / name / 'eval').glob('*.json')
    content = json.loads(path.read_text('utf-8').replace('version:', f'version:{name}'))
    content['metrics'] = [
      {'name': 'own', 'score': 1.0, 'signature': 'm:f'},
      *content['metrics'],
      {'name': 'comet', 'score': 1.0, 'signature': comet},
      {'name': f'only_{name}', 'score': 1.0, 'signature': 'm:f'},
    ]
    path.write_text(json.dumps(content), encoding='utf-8')
  both = compared(*systems)
  assert list(both['signatures']) == ['own', 'BLEU', 'chrF2++']


def test_the_result_that_is_compared_is_shown_below_its_run(score, untested):
  first, second = score('a', GOOD), score('b', POOR, step=9)
  both = compared(first, second)
  lines = comparison.as_table(both)
  for run, name in ((first, 'step5.beam4.alpha0.6'), (second, 'step9.beam4.alpha0.6')):
    (place,) = (number for number, line in enumerate(lines) if line.startswith(run))
    assert lines[place + 1] == f'  {name}'


@pytest.mark.parametrize(
  ('ours', 'theirs', 'facts'),
  [
    ({}, {'alpha': 1.0}, r'a has alpha=0.6, .*b has alpha=1.0;'),
    ({}, {'average': 3}, 'a has average=1, .*b has average=3;'),
    ({'sample': True}, {}, 'a has sample=True, temperature=.*b has sample=False'),
  ],
)
def test_systems_that_were_decoded_in_different_ways_are_rejected(
  score, untested, ours, theirs, facts
):
  systems = score('a', GOOD, **ours), score('b', POOR, **theirs)
  for arguments in systems, [','.join(systems)]:  # The seeds of one system, too.
    with pytest.raises(
      UserError, match=f'decoded alike; .*{facts}.*--allow_unequal_decoding'
    ):
      compared(*arguments)
  assert taken(compared(*systems, allow=True))


def test_steps_and_seeds_may_differ(score, untested):
  systems = [
    ','.join(
      score(f'{name}{seed}', text, step=5 + seed, seed=seed, sample=True)
      for seed in range(2)
    )
    for name, text in (('a', GOOD), ('b', POOR))
  ]
  both = compared(*systems)
  assert [name.partition('.')[0] for name in taken(both)] == ['step5', 'step6'] * 2
  for name, system in both['systems'].items():
    assert [seed['run'] for seed in system['results']] == name.split(',')
  text = '\n'.join(comparison.as_table(both))
  assert (
    'b1]' in text
    and 'step6.samples4.alpha0.6.temperature1.top_k0.top_p1.seed1   [' in text
  )


def test_one_of_several_results_is_chosen_by_its_file(score, untested):
  first, second = score('a', POOR, step=50), score('b', POOR)
  score('a', POOR, step=50, average=3)
  score('a', POOR)
  with pytest.raises(
    UserError, match=r'a has several results: .*; name the file of one .*\.json'
  ):
    compared(first, second)
  for name in ('step50.beam4.alpha0.6', 'step50.average3.beam4.alpha0.6'):
    file = f'{first}/eval/test.{name}.json'
    assert taken(compared(file, second, allow=True))[0] == name
  with pytest.raises(UserError, match=r'only once, .*step50\.average3'):
    compared(file, f'{first}/eval/../eval/test.{name}.json', allow=True)


def test_a_folder_of_results_stands_for_a_run(score, untested, tmp_path):
  first, second = score('a', GOOD), score('b', POOR, folder='')
  (tmp_path / 'b' / 'eval').mkdir()
  (tmp_path / 'b' / 'eval' / 'valid.5.txt').touch()  # As a run in training writes it.
  assert (
    compared(first, second)['systems'][second]['results'][0]['run']
    == second
    == str(tmp_path / 'b')
  )


@pytest.mark.parametrize(
  ('other', 'fact'),
  [
    ({'references': GOOD}, 'a and .*b differ in sources or references'),
    ({'translations': POOR[:5]}, 'differ in sources or references'),
    ({'bleu_tokenize': 'none'}, 'a and .*b differ in bleu_tokenize'),
  ],
)
def test_unequal_texts_tokenizers_or_numbers_of_seeds_are_rejected(score, other, fact):
  with pytest.raises(UserError, match=fact):
    compared(score('a', GOOD), score('b', **{'translations': GOOD, **other}))
  with pytest.raises(
    UserError, match=r'the same number of seeds; .*a has 1, .*c,.*d has 2'
  ):
    compared(score('a', GOOD), f'{score("c", GOOD)},{score("d", GOOD)}')
