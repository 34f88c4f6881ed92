"""Systems are compared only on the same text, with the deviation over their seeds."""

import dataclasses
import json

import pytest

from tests.evaluation.test_scores import GOOD, REFERENCES, SOURCES
from tests.runs import saved_checkpoints
from transformer.decoding.config import SampleConfig
from transformer.decoding.translator import Translation
from transformer.errors import UserError
from transformer.evaluation import results, scores
from transformer.evaluation.texts import Text
from transformer.tools.compare import comparison, significance

POOR = ['The cat.', 'Two dogs run.', 'Birds.'] * 4


@pytest.fixture
def score(tmp_path):
  """(name, translations, …) -> a run's directory with the scores of these translations."""
  def write(name, translations, references=REFERENCES, step=5, seed=0, average=1, folder='eval',
            **decode):
    answers = [Translation(text, -1.0, False, ((text, -1.0),)) for text in translations]
    decoding = results.Decoding(SampleConfig(**decode), seed, [])
    steps = [*range(step - average + 1, step + 1)]
    text = Text('test', SOURCES[:len(translations)], [references[:len(translations)]])
    *_, (result, sentences) = scores.evaluate(text, answers, 1.0, decoding.config.bleu_tokenize,
                                              'en')
    folder = tmp_path / name / folder
    folder.mkdir(parents=True, exist_ok=True)
    place = results.Place(folder, 'test', results.describe(steps, decoding))
    place.write(tmp_path / name, 'a digest', {
        **result, 'text': 'test', 'steps': steps, 'seed': seed, 'ensemble': [],
        'decode': dataclasses.asdict(decoding.config)}, sentences)
    return str(tmp_path / name)

  return write


@pytest.fixture
def untested(monkeypatch):
  """Replaces the significance tests, which take most of the time."""
  monkeypatch.setattr(significance, 'differences', lambda name, _, systems, *more: [
      significance.Difference(name, 0.0, 0.0, 1.0, 1.0) for _ in systems])


def compared(*systems, decoding='', allow=False):
  return comparison.compare(comparison.read(systems, 'test', decoding), allow)


def taken(found):
  return [each['name'] for seeds in found['results'].values() for each in seeds]


def test_systems_are_compared_over_their_seeds(score):
  poor, good = [score('a', POOR), score('b', GOOD)], [score('c', GOOD), score('d', GOOD)]
  found = compared(','.join(poor), ','.join(good))
  assert found['sentences'] == 12
  scores = found['systems'][','.join(poor)]['BLEU']
  assert scores['mean'] == pytest.approx(sum(scores['seeds']) / 2)
  assert scores['deviation'] == pytest.approx(abs(scores['seeds'][0] - scores['seeds'][1]) / 2**.5)
  assert found['systems'][','.join(good)]['BLEU']['deviation'] == 0
  by_metric = {each['metric']: each for each in found['differences'][','.join(good)]}
  assert by_metric['BLEU']['system'] > by_metric['BLEU']['baseline']
  assert by_metric['TER']['system'] < by_metric['TER']['baseline']
  text = '\n'.join(comparison.as_table(found))
  assert f'{scores["mean"]:.2f} ± {scores["deviation"]:.2f}' in text
  assert f'{by_metric["BLEU"]["bootstrap"]:.4f}' in text and 'tok:13a' in text


@pytest.mark.parametrize('first_has_it', [True, False])
def test_metrics_that_some_results_lack_are_left_out(score, untested, tmp_path, first_has_it):
  systems = [score('a', POOR), score('b', GOOD)]
  path, = (tmp_path / 'ab'[not first_has_it] / 'eval').glob('*.json')
  content = json.loads(path.read_text('utf-8'))
  content['metrics'].append({'name': 'comet', 'score': 1.0, 'signature': 'm:comet'})
  path.write_text(json.dumps(content), encoding='utf-8')
  found = compared(*systems)
  assert list(found['signatures']) == ['BLEU', 'chrF2++', 'TER']
  assert all(list(each) == list(found['signatures']) for each in found['systems'].values())
  assert 'comet' not in '\n'.join(comparison.as_table(found))


def test_a_metric_that_was_computed_in_two_ways_is_left_out_whatever_its_version(
    score, untested, tmp_path):
  systems = [score('a', POOR), score('b', GOOD)]
  path, = (tmp_path / 'b/eval').glob('*.json')
  content = path.read_text('utf-8').replace('norm:no', 'norm:yes').replace('version:', 'version:9')
  path.write_text(content, encoding='utf-8')
  assert list(compared(*systems)['signatures']) == ['BLEU', 'chrF2++']


def test_a_test_that_fails_costs_its_p_alone(score, monkeypatch, caplog):
  tests = significance.differences

  def fail(name, *more):
    if name == 'chrF2++':
      raise MemoryError('too much')
    return tests(name, *more)

  monkeypatch.setattr(significance, 'differences', fail)
  poor, good = score('a', POOR), score('b', GOOD)
  found = compared(poor, good)
  assert [each['metric'] for each in found['differences'][good]] == ['BLEU', 'TER']
  assert found['systems'][good]['chrF2++']['mean'] > found['systems'][poor]['chrF2++']['mean']
  warning, = caplog.messages
  assert 'chrF2++' in warning and 'MemoryError: too much' in warning


def test_each_p_stands_under_its_metric():
  systems = {name: {metric: {'seeds': [1.0], 'mean': 1.0} for metric in ('comet', 'TER')}
             for name in ('a', 'b')}
  differences = [{'metric': metric, 'bootstrap': p, 'randomisation': p / 2}
                 for metric, p in (('BLEU', 0.1), ('chrF2++', 0.2), ('TER', 0.4))]
  *_, header, _, _, _, _, bootstrap, randomisation = comparison.as_table({
      'text': 'test', 'sentences': 1, 'signatures': {'comet': 'c', 'TER': 't'}, 'systems': systems,
      'results': {name: [{'name': 'step1', 'run': name}] for name in systems},
      'differences': {'b': differences}})
  assert header.endswith('TER') and bootstrap.endswith(' 0.4000') and 'comet' in header
  assert len(bootstrap) == len(randomisation) == len(header.strip('\n'))
  assert '0.1' not in bootstrap and randomisation.endswith(' 0.2000')


def test_results_of_one_tokenizer_are_compared_whether_a_flag_or_a_config_gave_it(
    score, untested, tmp_path):
  systems = [score('a', POOR, bleu_tokenize='char'), score('b', GOOD, bleu_tokenize='char')]
  path, = (tmp_path / 'b/eval').glob('*.json')
  content = json.loads(path.read_text('utf-8'))
  path.write_text(json.dumps({**content, 'more': {'bleu': 'char'}}), encoding='utf-8')
  found = compared(*systems)
  assert 'tok:char' in found['signatures']['BLEU']


def test_results_from_before_there_was_a_type_are_of_the_trained_one(score, untested, tmp_path):
  first, second = score('a', GOOD), score('b', POOR)
  path, = (tmp_path / 'a/eval').glob('*.json')
  content = json.loads(path.read_text('utf-8'))
  content['decode'].pop('dtype')
  path.write_text(json.dumps(content), 'utf-8')
  assert len(taken(compared(first, second))) == 2


def test_the_decoding_that_all_runs_have_is_chosen_and_shown(score, untested):
  first, second = score('a', GOOD), score('b', POOR, step=9)
  score('a', POOR, beam_size=1)  # The newest result of a.
  found = compared(first, second)
  assert taken(found) == ['step5.beam4.alpha0.6', 'step9.beam4.alpha0.6']
  assert [each['steps'] for seeds in found['results'].values() for each in seeds] == [[5], [9]]
  assert found['results'][first][0]['decoding']['beam_size'] == 4
  lines = comparison.as_table(found)
  for run, name in ((first, 'step5.beam4.alpha0.6'), (second, 'step9.beam4.alpha0.6')):
    place, = (number for number, line in enumerate(lines) if line.startswith(run))
    assert lines[place + 1] == f'  {name}'


@pytest.mark.parametrize(('ours', 'theirs', 'facts'), [
    ({}, {'beam_size': 1}, 'a has beam_size=4, .*b has beam_size=1;'),
    ({'alpha': 1.0}, {'alpha': 0.6}, r'a has alpha=1.0, .*b has alpha=0.6;'),
    ({}, {'max_extra_length': 3}, 'a has max_extra_length=50, .*b has max_extra_length=3;'),
    ({}, {'dtype': 'bfloat16'}, 'a has dtype=trained, .*b has dtype=bfloat16;'),
    ({}, {'average': 3}, 'a has average=1, .*b has average=3;'),
    ({'sample': True}, {}, 'a has sample=True, temperature=.*b has sample=False;')])
def test_systems_that_were_decoded_in_different_ways_are_refused(
    score, untested, ours, theirs, facts):
  systems = score('a', GOOD, **ours), score('b', POOR, **theirs)
  with pytest.raises(UserError, match=f'decoded alike; .*{facts} .*--allow_unequal_decoding'):
    compared(*systems)
  with pytest.raises(UserError, match='decoded alike'):  # The seeds of one system, too.
    compared(','.join(systems))
  assert taken(compared(*systems, allow=True))


def test_steps_and_seeds_may_differ(score, untested):
  found = compared(*(','.join(score(f'{name}{seed}', text, step=5 + seed, seed=seed, sample=True)
                              for seed in range(2)) for name, text in (('a', GOOD), ('b', POOR))))
  assert [name.partition('.')[0] for name in taken(found)] == ['step5', 'step6'] * 2
  text = '\n'.join(comparison.as_table(found))
  assert 'b1]' in text and 'step6.samples4.alpha0.6.temperature1.top_k0.top_p1.seed1   [' in text


def test_one_of_several_results_is_chosen_by_name(score, untested):
  first, second = score('a', POOR, step=50), score('b', POOR)
  score('a', GOOD)
  with pytest.raises(UserError, match=r'a has several results: step5\.beam4\.alpha0\.6, '
                                      r'step50\.beam4\.alpha0\.6; choose one of this run, as .*a:'):
    compared(first, second)  # Both have the same decoding, so none would choose one of them.
  assert taken(compared(f'{first}:step5', second))[0] == 'step5.beam4.alpha0.6'
  assert taken(compared(f'{first}:step50', second))[0] == 'step50.beam4.alpha0.6'
  for run in (first, second):
    score(run, GOOD, step=5, beam_size=1)
  with pytest.raises(UserError, match=r'several results.*--decoding=beam4\.alpha0\.6, or one of'):
    compared(f'{first}:step5', second)
  found = compared(f'{first}:step5', second, decoding='beam1')
  assert taken(found)[1] == 'step5.beam1.alpha0.6'


def test_beam_sizes_of_one_run_are_compared_on_request(score, untested):
  score('a', POOR, beam_size=1)
  run = score('a', GOOD)
  found = compared(f'{run}:beam1', f'{run}:beam4', allow=True)
  scores = [found['systems'][f'{run}:beam{size}']['BLEU']['mean'] for size in (1, 4)]
  assert scores[0] < scores[1]


def test_an_average_is_not_the_checkpoint_that_it_ends_with(score, untested):
  run = score('a', GOOD, step=300, average=3)
  with pytest.raises(UserError, match=r'different results; .*step300\.average3.*:average3'):
    compared(f'{run}:step300', f'{run}:average3', allow=True)
  score('a', POOR, step=300)
  found = compared(f'{run}:step300', f'{run}:average3', allow=True)
  assert taken(found) == ['step300.beam4.alpha0.6', 'step300.average3.beam4.alpha0.6']


def test_the_best_and_the_latest_step_of_a_run_are_compared(score, untested):
  run, steps = score('a', GOOD, step=2), (1, 2, 3)
  saved_checkpoints.save(f'{run}/checkpoints', steps, bleu=(4, 6, 5))
  with pytest.raises(UserError, match=r'different results; .*step2.*:best and of .*:latest;'):
    compared(f'{run}:best', f'{run}:latest')
  score('a', POOR, step=3)
  found = compared(f'{run}:best.beam4', f'{run}:latest')
  assert taken(found) == ['step2.beam4.alpha0.6', 'step3.beam4.alpha0.6']
  with pytest.raises(UserError, match=r"a result for 'test' of 'step2\.beam1'"):
    compared(f'{run}:best.beam1', f'{run}:latest')


def test_a_text_whose_name_begins_like_a_result_is_another_text(score, untested, tmp_path):
  first, second = score('a', GOOD), score('b', POOR)
  for path in (tmp_path / 'b' / 'eval').iterdir():
    content = path.read_text('utf-8').replace('"text": "test"', '"text": "test.step2"')
    path.with_name(path.name.replace('test.', 'test.step2.')).write_text(content, 'utf-8')
  assert taken(compared(first, second)) == ['step5.beam4.alpha0.6'] * 2


def test_a_folder_of_results_stands_for_a_run(score, untested, tmp_path):
  first, second = score('a', GOOD), score('b', POOR, folder='')
  (tmp_path / 'b' / 'eval').mkdir()
  (tmp_path / 'b' / 'eval' / 'valid.5.txt').touch()  # As a run in training writes it.
  assert compared(first, second)['results'][second][0]['run'] == second == str(tmp_path / 'b')


@pytest.mark.parametrize(('other', 'fact'), [
    ({'references': GOOD}, 'sentence 3 of .*a and of .*b differ in source or reference'),
    ({'translations': POOR[:5]}, 'a has 12 sentences, .*b has 5'),
    ({'bleu_tokenize': 'none'}, 'a has bleu_tokenize=13a, .*b has none')])
def test_unequal_texts_or_tokenizers_are_refused(score, other, fact):
  with pytest.raises(UserError, match=fact):
    compared(score('a', GOOD), score('b', **{'translations': GOOD, **other}))


def test_commas_stand_between_runs_and_in_their_names(score, untested):
  a, b, c, d = (score(name, GOOD) for name in ('t', 't,1', 't,1,2', 'd'))
  results = compared(f'{a},{b}:beam4', f'{c},{d}')['results']
  assert [[each['run'] for each in seeds] for seeds in results.values()] == [[a, b], [c, d]]


def test_unequal_numbers_of_seeds_are_refused(score):
  first = score('a', GOOD)
  with pytest.raises(UserError, match=r'as many seeds as each other; .*a has 1, .*c has 2'):
    compared(first, f'{score("b", GOOD)},{score("c", GOOD)}')
