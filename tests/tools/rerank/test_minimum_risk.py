"""Minimum Bayes risk takes the candidate of the highest expected utility."""

import pytest
import sacrebleu

from transformer.tools.rerank.minimum_risk import choose

SENTENCES = [
  ['the cat sat on the mat', 'a cat sat on the mat', 'the cat sat on a mat', 'no such thing'],
  ['yes', 'no', 'no'],  # Counted twice, so it is the likeliest.
  ['one two', 'two one'],  # Equal; the first stays.
  ['alone', 'alone'],
]


@pytest.mark.parametrize('utility', ['chrF2++', 'BLEU'])
def test_the_expectation_is_over_all_candidates(utility):
  metric = (
    sacrebleu.CHRF(word_order=2) if utility == 'chrF2++' else sacrebleu.BLEU(effective_order=True)
  )
  chosen_texts = choose(SENTENCES, utility, '13a', 1)
  for texts, chosen in zip(SENTENCES, chosen_texts, strict=True):
    expected = [
      sum(metric.sentence_score(text, [other]).score for other in texts) for text in texts
    ]
    assert chosen == texts[expected.index(max(expected))]
  assert chosen_texts[1:3] == ['no', 'one two'] and choose([[]], utility, '13a', 1) == ['']


def test_bleu_sees_the_words_of_text_without_spaces():
  candidates = ['他们昨天去了那里', '我们今天去学校', '我们今天去学校吗', '我们今天去了学校']
  for tokenize, wanted in ('zh', '我们今天去学校'), ('13a', candidates[0]):
    assert choose([candidates], 'BLEU', tokenize, 1) == [wanted]


@pytest.mark.long
def test_processes_choose_what_one_chooses():
  lists = SENTENCES * 9
  assert choose(lists, 'chrF2++', '13a', 2) == choose(lists, 'chrF2++', '13a', 1)
