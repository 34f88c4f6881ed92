"""Minimum Bayes risk takes the candidate of the highest expected utility."""

import pytest
import sacrebleu

from transformer.decoding.translator import Translation
from transformer.evaluation.minimum_risk import choose

SENTENCES = [
    ['the cat sat on the mat', 'a cat sat on the mat', 'the cat sat on a mat', 'no such thing'],
    ['yes', 'no', 'no'],  # Counted twice, so it is the likeliest.
    ['one two', 'two one'],  # Equal; the first stays.
    ['alone', 'alone'],
]


def answer(texts):
  nbest = tuple((text, -float(place)) for place, text in enumerate(texts))
  return Translation(nbest[0][0], 0.0, True, nbest)


@pytest.mark.parametrize('utility', ['chrF2++', 'BLEU'])
def test_the_expectation_is_over_all_candidates(utility):
  metric = (sacrebleu.CHRF(word_order=2) if utility == 'chrF2++'
            else sacrebleu.BLEU(effective_order=True))
  found = choose(list(map(answer, SENTENCES)), utility, '13a', 1)
  for texts, chosen in zip(SENTENCES, found, strict=True):
    expected = [sum(metric.sentence_score(text, [other]).score for other in texts)
                for text in texts]
    assert chosen.text == texts[expected.index(max(expected))]
    assert chosen.score == -texts.index(chosen.text) and chosen.cut
  assert found[1].text == 'no' and found[2].text == 'one two'


def test_bleu_sees_the_words_of_text_without_spaces():
  candidates = ['他们昨天去了那里', '我们今天去学校', '我们今天去学校吗', '我们今天去了学校']
  for tokenize, wanted in ('zh', '我们今天去学校'), ('13a', candidates[0]):
    assert choose([answer(candidates)], 'BLEU', tokenize, 1)[0].text == wanted


def test_blank_sentences_stay():
  blank = Translation('', 0.0, False, (('', 0.0),))
  assert choose([blank, blank._replace(nbest=())], 'BLEU', '13a', 1) == [
      blank, blank._replace(nbest=())]


@pytest.mark.long
def test_processes_choose_what_one_chooses():
  answers = list(map(answer, SENTENCES)) * 9
  assert choose(answers, 'chrF2++', '13a', 2) == choose(answers, 'chrF2++', '13a', 1)
