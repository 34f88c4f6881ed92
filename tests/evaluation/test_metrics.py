"""Scores, intervals and signatures equal sacreBLEU's own; so does the paper's BLEU by hand."""

import functools
import importlib.metadata
import tracemalloc

import pytest
import sacrebleu

from transformer.errors import UserError
from transformer.evaluation import metrics
from transformer.evaluation.metrics import (
  check_tokenizer,
  corpus_bleu,
  other_protocols,
  score_text,
)

TRANSLATIONS = ['The cat sat on the mat .', 'There is a dog here, is it not?', 'It works well now.']
REFERENCES = ['The cat sat on a mat.', 'There is a dog here, isn\'t it?', 'It works very well now.']


@pytest.mark.parametrize('tokenize', ['13a', 'none', 'intl'])
def test_score_is_sacrebleus(tokenize):
  found = corpus_bleu(TRANSLATIONS, [REFERENCES], tokenize)
  wanted = sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES], tokenize=tokenize)
  assert found.score == wanted.score
  assert f'tok:{tokenize}|' in found.signature
  assert 'nrefs:1|case:mixed|' in found.signature


def test_tokenizer_matters():
  assert corpus_bleu(TRANSLATIONS, [REFERENCES], '13a').score != (
      corpus_bleu(TRANSLATIONS, [REFERENCES], 'none').score)


def test_another_reference_helps():
  one = corpus_bleu(TRANSLATIONS, [REFERENCES])
  two = corpus_bleu(TRANSLATIONS, [REFERENCES, TRANSLATIONS])
  assert one.score < 80 < 99 < two.score
  assert 'nrefs:2|' in two.signature


def test_case_counts():
  assert corpus_bleu(TRANSLATIONS, [TRANSLATIONS]).score == pytest.approx(100)
  assert corpus_bleu([line.lower() for line in TRANSLATIONS], [TRANSLATIONS]).score < 90


def test_reference_of_another_length_is_refused():
  with pytest.raises(UserError, match='reference 2 has 2 lines, there are 3 translations'):
    corpus_bleu(TRANSLATIONS, [REFERENCES, REFERENCES[:2]])


def corpus_scores(translations, references, tokenize):
  return [score_text(name, translations, references, tokenize)[0] for name in metrics.NAMES]


def sentence_scores(translations, references, tokenize):
  columns = {name: score_text(name, translations, references, tokenize)[1]
             for name in metrics.NAMES}
  return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def by_name(translations, references, tokenize='13a', target_language='de'):
  scores = [corpus_bleu(translations, references, tokenize),
            *other_protocols(translations, references, tokenize, target_language)]
  assert len({each.name for each in scores}) == len(scores)
  return {each.name: each for each in scores}


@pytest.mark.parametrize('tokenize', ['13a', 'intl', 'none', 'char'])
def test_the_other_protocols_are_those_that_the_headline_is_not(tokenize):
  names = {each.name for each in other_protocols(TRANSLATIONS, [REFERENCES], tokenize, 'de')}
  assert names == {'13a', 'intl', '13a lower-cased', 'none', 'compound-split'} - {tokenize}


def test_a_protocol_scores_the_same_beside_any_headline():
  translations = ['Er sah „die rot-grüne Fahne“ von A-B-C im Norden.']
  references = ['Sie sah „die rot-weiße Fahne“ von A-B-C im norden.']
  plain, other = (by_name(translations, [references], tokenize) for tokenize in ('13a', 'intl'))
  assert plain == other
  assert len({each.score for each in plain.values()}) == 5  # All protocols differ.


def test_signatures_say_what_was_done():
  scores = by_name(TRANSLATIONS, [REFERENCES, REFERENCES])
  end = f'|version:{importlib.metadata.version("sacrebleu")}'
  assert {name: each.signature.removesuffix(end) for name, each in scores.items()} == {
      '13a': 'nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp',
      'intl': 'nrefs:2|case:mixed|eff:no|tok:intl|smooth:exp',
      '13a lower-cased': 'nrefs:2|case:lc|eff:no|tok:13a|smooth:exp',
      'none': 'nrefs:2|case:mixed|eff:no|tok:none|smooth:exp',
      'compound-split': 'nrefs:2|case:mixed|eff:no|tok:moses-de+compound-split|smooth:none'
                        f'|sacremoses:{importlib.metadata.version("sacremoses")}'}
  # Text that is tokenised already does not go through Moses.
  tokenised = by_name(TRANSLATIONS, [REFERENCES], 'none')['compound-split'].signature
  assert '|tok:compound-split|' in tokenised and 'moses' not in tokenised


def test_lower_cased_ignores_case_and_nothing_else_does():
  shouted = [line.upper() for line in TRANSLATIONS]
  plain, loud = by_name(TRANSLATIONS, [REFERENCES]), by_name(shouted, [REFERENCES])
  assert loud['13a lower-cased'].score == plain['13a lower-cased'].score > 0
  assert by_name(shouted, [TRANSLATIONS])['13a lower-cased'].score == pytest.approx(100)
  for name in plain.keys() - {'13a lower-cased'}:
    assert loud[name].score < plain[name].score, name


def test_compounds_count_by_their_parts():
  # The tokens are: Sie sah die rot ##AT##-##AT## grüne Fahne . Only grüne is wrong. It is in 1 of
  # 8 unigrams, 2 of 7 bigrams, 3 of 6 and 3 of 5. So BLEU⁴ = 7/8 · 5/7 · 3/6 · 2/5 = 1/8.
  translation, reference = 'Sie sah die rot-grüne Fahne.', 'Sie sah die rot-weiße Fahne.'
  scores = by_name([translation], [[reference]])
  assert scores['compound-split'].score == pytest.approx(100 * (1 / 8) ** .25)
  assert scores['compound-split'].details.startswith('BLEU = 59.46 87.5/71.4/50.0/40.0 ')
  # The tokens are: Sie sah die rot-grüne Fahne. One is wrong, so 4/5 · 2/4 · 1/3 · 0/2. For the
  # first order without a match, sacreBLEU counts half a match.
  assert scores['none'].score == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * .5 / 2) ** .25)
  # In tokenised text the full stop is one more token: 5/6 · 3/5 · 1/4 · 0/3.
  tokenised = [line.replace('.', ' .') for line in (translation, reference)]
  scores = by_name(tokenised[:1], [tokenised[1:]], 'none')
  assert scores['compound-split'].score == pytest.approx(100 * (1 / 8) ** .25)
  assert scores['none'].score == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * .5 / 3) ** .25)


def test_compound_split_is_not_smoothed_and_takes_every_reference():
  translation = 'Eine rot-weiße Fahne.'  # Six tokens.
  assert by_name([translation], [['Eine Fahne.']])['compound-split'].score == 0
  scores = by_name([translation], [['Eine Fahne.'], ['Eine rot-weiße Fahne.']])
  assert scores['compound-split'].score == pytest.approx(100)


def test_text_that_comes_tokenised_is_not_tokenised_again_for_its_compounds():
  # Moses would split an entity into three tokens, `&amp; quot ;`: 7 of 8 correct, not 5 of 6.
  translation, reference = 'a b c d e &quot;', 'a b c d x &quot;'
  details = by_name([translation], [[reference]], 'none')['compound-split'].details
  assert ' 83.3/60.0/50.0/33.3 ' in details


@pytest.mark.parametrize('target_language', ['en', 'fr', 'nl'])
def test_compound_split_is_for_german(target_language):
  german = by_name(TRANSLATIONS, [REFERENCES])
  other = by_name(TRANSLATIONS, [REFERENCES], '13a', target_language)
  assert 'compound-split' not in other
  assert other == {name: each for name, each in german.items() if name != 'compound-split'}


@pytest.mark.parametrize(('tokenize', 'warnings'), [('none', 0), ('13a', 1), ('intl', 1)])
def test_tokenised_text_gives_one_warning_unless_the_tokenizer_is_none(tokenize, warnings, caplog):
  text = ['The cat sat on the mat .'] * 100
  for score in (corpus_bleu, functools.partial(score_text, 'BLEU')):
    caplog.clear()
    score(text, [text], tokenize)
    other_protocols(text, [text], tokenize, 'de')
    assert sum('tokenized period' in each.message for each in caplog.records) == warnings


def test_protocols_refuse_a_reference_of_another_length():
  with pytest.raises(UserError, match='reference 1 has 2 lines, there are 3 translations'):
    other_protocols(TRANSLATIONS, [REFERENCES[:2]], 'none', 'de')


def test_metrics_are_sacrebleus_and_lie_in_their_intervals():
  translations, references = TRANSLATIONS * 9, REFERENCES * 9
  bleu, chrf, ter = corpus_scores(translations, [references], '13a')
  assert bleu[:4] == corpus_bleu(translations, [references])._replace(name='BLEU')[:4]
  assert chrf.score == sacrebleu.CHRF(word_order=2).corpus_score(translations, [references]).score
  assert ter.score == sacrebleu.TER().corpus_score(translations, [references]).score
  assert 'nc:6|nw:2|' in chrf.signature and 'tok:tercom|' in ter.signature
  for each in (bleu, chrf, ter):
    low, high = each.interval
    assert low < each.score < high and 'bs:' not in each.signature
  # From the same samples as sacreBLEU's command, which shows half the width.
  metric = sacrebleu.BLEU()
  wanted = metric.corpus_score(translations, [references], n_bootstrap=1000)
  low, high = bleu.interval
  assert (high - low) / 2 == pytest.approx(wanted._ci)


def test_an_interval_is_made_of_scores_that_samples_had():
  # Samples of two sentences hold the first twice, the second twice, or both.
  translations, references = [REFERENCES[0], TRANSLATIONS[1]], REFERENCES[:2]
  possible = [corpus_scores([translations[i], translations[j]],
                            [[references[i], references[j]]], '13a') for i, j in ((0, 0), (1, 1))]
  for score, first, second in zip(corpus_scores(translations, [references], '13a'), *possible,
                                  strict=True):
    assert sorted(score.interval) == list(score.interval) == pytest.approx(
        sorted((first.score, second.score)))


def test_one_bootstrap_sample_is_in_memory_at_a_time():
  translations, references = TRANSLATIONS * 100, REFERENCES * 100
  tracemalloc.start()
  try:
    corpus_scores(translations, [references], '13a')
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < 20_000 * len(translations)  # All 1,000 would take 100,000 bytes a sentence.


def test_text_without_spaces_is_compared_by_its_characters():
  translations, references = ['私は毎朝コーヒーを飲む。'], ['私は毎朝お茶を飲む。']
  plain, by_character = (corpus_scores(translations, [references], tokenize)
                         for tokenize in ('13a', 'char'))
  assert plain[0].score < 1 < 30 < by_character[0].score
  assert plain[2].score == 100 > 60 > by_character[2].score
  assert 'norm:yes|' in by_character[2].signature and 'asian:yes' in by_character[2].signature


def test_a_tokenizer_without_its_packages_says_how_to_install_them(monkeypatch):
  def missing(*_, **__):
    raise RuntimeError('\nJapanese tokenization requires extra dependencies\n')

  check_tokenizer('13a')
  monkeypatch.setattr(metrics.sacrebleu, 'BLEU', missing)
  with pytest.raises(UserError, match=r'pip install "sacrebleu\[ja\]"'):
    check_tokenizer('ja-mecab')


def test_an_interval_of_sentences_that_are_alike_is_a_point():
  for each in corpus_scores(TRANSLATIONS[:1] * 5, [REFERENCES[:1] * 5], '13a'):
    assert each.interval == pytest.approx((each.score, each.score))


def test_a_sentence_of_two_words_is_scored_by_the_orders_that_it_has():
  right, half = sentence_scores(['good morning', 'good day'], [['good morning'] * 2], '13a')
  assert right['BLEU'] == pytest.approx(100)
  assert half['BLEU'] == pytest.approx(100 * (1 / 2 * 1 / 2) ** 0.5)  # A pair counts half a match.


def test_a_sentence_is_scored_by_itself_against_all_its_references():
  alone = sentence_scores(TRANSLATIONS, [REFERENCES], '13a')
  assert alone[1] == sentence_scores(TRANSLATIONS[1:2], [REFERENCES[1:2]], '13a')[0]
  first = corpus_scores(TRANSLATIONS[:1], [REFERENCES[:1]], '13a')
  assert alone[0] == pytest.approx({each.name: each.score for each in first})
  both = sentence_scores(TRANSLATIONS, [REFERENCES, TRANSLATIONS], '13a')
  assert [each['TER'] for each in both] == [0, 0, 0] < [each['TER'] for each in alone]
