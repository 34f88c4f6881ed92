"""Minimum Bayes risk takes the candidate of the highest expected utility."""

import pytest
import sacrebleu

from transformer.tools.rerank.mbr import select_by_mbr

SENTENCES = [
  [
    'the cat sat on the mat',
    'a cat sat on the mat',
    'the cat sat on a mat',
    'no such thing',
  ],
  ['yes', 'no', 'no'],  # Counted twice, so it is the likeliest.
  ['one two', 'two one'],  # Equal; the first stays.
  ['alone', 'alone'],
]


def test_the_expectation_is_over_all_candidates():
  metric = sacrebleu.CHRF(word_order=2)
  chosen_texts = select_by_mbr(SENTENCES, 1)
  for texts, chosen in zip(SENTENCES, chosen_texts, strict=True):
    expected = [
      sum(metric.sentence_score(text, [other]).score for other in texts)
      for text in texts
    ]
    assert chosen == texts[expected.index(max(expected))]
  assert chosen_texts[1:3] == ['no', 'one two'] and select_by_mbr([[]], 1) == ['']


@pytest.mark.long
def test_processes_choose_what_one_chooses():
  lists = SENTENCES * 9
  assert select_by_mbr(lists, 2) == select_by_mbr(lists, 1)
