"""Systems are held against each other on one text only, with their seeds' spread."""

import pytest

from transformer.errors import UserError
from transformer.inference import compare, evaluation
from transformer.inference.translate import Translation

SOURCES = ['Eine Katze.', 'Zwei Hunde laufen.', 'Drei Vögel singen heute.'] * 4
REFERENCES = ['A cat is here.', 'Two dogs run fast.', 'Three birds sing well today.'] * 4
GOOD = ['A cat is here.', 'Two dogs run fast.', 'Three birds sing today.'] * 4
POOR = ['The cat.', 'Two dogs run.', 'Birds.'] * 4


@pytest.fixture
def score(tmp_path):
  """(name, translations, …) -> a run's directory with the result of a text."""
  def write(name, translations, references=REFERENCES, tokenize='13a', stem='test.step5.beam4'):
    answers = [Translation(text, -1.0, False, ((text, -1.0),)) for text in translations]
    result, sentences = evaluation.evaluate(SOURCES[:len(translations)],
                                            [references[:len(translations)]], answers, 1.0,
                                            tokenize, 'en')
    folder = tmp_path / name / 'eval'
    folder.mkdir(parents=True, exist_ok=True)
    evaluation.write(folder, stem, {**result, 'text': 'test', 'decode': {
        'bleu_tokenize': tokenize}}, sentences)
    return str(tmp_path / name)

  return write


def compared(*systems):
  return compare.compare({name: [compare.read(each, 'test') for each in name.split(',')]
                          for name in systems})


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
  text = '\n'.join(compare.in_words(found))
  assert f'{scores["mean"]:.2f} ± {scores["deviation"]:.2f}' in text
  assert f'{by_metric["BLEU"]["bootstrap"]:.4f}' in text and 'tok:13a' in text


def test_the_latest_result_counts_unless_another_is_named(score):
  score('a', POOR, stem='test.step5.beam1')
  workdir = score('a', GOOD)
  assert compare.read(workdir, 'test').translations == GOOD
  assert compare.read(workdir, 'test', 'beam1').translations == POOR


@pytest.mark.parametrize(('other', 'fact'), [
    ({'references': GOOD}, 'sentence 3 of .*a and of .*b have another source or reference'),
    ({'translations': POOR[:5]}, 'a has 12 sentences, .*b has 5'),
    ({'tokenize': 'none'}, 'a has bleu_tokenize=13a, .*b has none')])
def test_what_was_not_scored_alike_is_refused(score, other, fact):
  with pytest.raises(UserError, match=fact):
    compared(score('a', GOOD), score('b', **{'translations': GOOD, **other}))


def test_other_numbers_of_seeds_are_refused(score):
  first = score('a', GOOD)
  with pytest.raises(UserError, match=r'as many seeds as each other; .*a has 1, .*c has 2'):
    compared(first, f'{score("b", GOOD)},{score("c", GOOD)}')
