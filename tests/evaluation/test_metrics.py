"""Scores, intervals and signatures equal sacreBLEU's own."""

import pytest
import sacrebleu

from transformer.errors import UserError
from transformer.evaluation import metrics
from transformer.evaluation.metrics import (
  check_tokenizer,
  corpus_score,
  score_with_intervals,
)

TRANSLATIONS = [
  'The cat sat on the mat .',
  'There is a dog here, is it not?',
  'It works well now.',
]
REFERENCES = [
  'The cat sat on a mat.',
  "There is a dog here, isn't it?",
  'It works very well now.',
]


def scores(translations, references, tokenize='13a'):
  return [
    score_with_intervals(name, translations, references, tokenize)
    for name in metrics.SACREBLEU_METRICS
  ]


def test_scores_match_sacrebleu_and_are_within_its_intervals(monkeypatch):
  monkeypatch.delenv('SACREBLEU_SEED', raising=False)
  translations, references = (
    TRANSLATIONS * 9,
    [REFERENCES * 9, TRANSLATIONS[:2] * 13 + ['x']],
  )
  bleu, chrf = all_scores = scores(translations, references)
  assert bleu.score == corpus_score('BLEU', translations, references)
  for score, metric in zip(
    all_scores,
    (sacrebleu.BLEU(), sacrebleu.CHRF(word_order=2)),
    strict=True,
  ):
    assert score.score == metric.corpus_score(translations, references).score
    assert (
      score.signature == str(metric.get_signature()) and 'nrefs:2|' in score.signature
    )
    low, high = score.interval
    # sacreBLEU's command shows half the width.
    wanted = metric.corpus_score(translations, references, n_bootstrap=1000)
    assert (high - low) / 2 == pytest.approx(wanted._ci) and low < score.score < high
  assert 'nc:6|nw:2|' in chrf.signature


@pytest.mark.parametrize(
  ('tokenize', 'warnings'), [('none', 0), ('13a', 1), ('intl', 1)]
)
def test_tokenized_text_logs_one_warning_unless_the_tokenizer_is_none(
  tokenize, warnings, caplog
):
  text = ['The cat sat on the mat .'] * 100
  for score in (corpus_score, score_with_intervals):
    caplog.clear()
    score('BLEU', text, [text], tokenize)
    assert (
      sum('tokenized period' in record.message for record in caplog.records) == warnings
    )


def test_text_without_spaces_is_compared_by_its_characters():
  translations, references = ['私は毎朝コーヒーを飲む。'], ['私は毎朝お茶を飲む。']
  plain, by_character = (
    scores(translations, [references], tokenize) for tokenize in ('13a', 'char')
  )
  assert plain[0].score < 1 < 30 < by_character[0].score


def test_a_tokenizer_without_its_packages_says_how_to_install_them(monkeypatch):
  def missing(*_, **__):
    raise RuntimeError('\nJapanese tokenization requires extra dependencies\n')

  check_tokenizer('13a')
  monkeypatch.setattr(sacrebleu, 'BLEU', missing)
  with pytest.raises(UserError, match=r'pip install "sacrebleu\[ja\]"'):
    check_tokenizer('ja-mecab')


def test_a_sentence_is_scored_by_itself_against_all_its_references():
  for whole, one, both in zip(
    scores(TRANSLATIONS, [REFERENCES]),
    scores(TRANSLATIONS[1:2], [REFERENCES[1:2]]),
    scores(TRANSLATIONS, [REFERENCES, TRANSLATIONS]),
    strict=True,
  ):
    assert whole.sentences[1] == one.sentences[0] == pytest.approx(one.score)
    assert both.sentences == pytest.approx([100] * 3)
  # A sentence of two words is scored by the orders that it has; a pair counts half a match.
  computed = score_with_intervals(
    'BLEU', ['good morning', 'good day'], [['good morning'] * 2], '13a'
  )
  assert computed.sentences == pytest.approx([100, 100 * (1 / 2 * 1 / 2) ** 0.5])
