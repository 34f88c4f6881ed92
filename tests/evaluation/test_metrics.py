"""Scores, intervals and signatures equal sacreBLEU's own; so does the paper's BLEU by hand."""

import functools
import importlib.metadata

import pytest
import sacrebleu

from transformer.errors import UserError
from transformer.evaluation import metrics
from transformer.evaluation.metrics import check_tokenizer, corpus_bleu, other_protocols, score_text

TRANSLATIONS = ['The cat sat on the mat .', 'There is a dog here, is it not?', 'It works well now.']
REFERENCES = ['The cat sat on a mat.', "There is a dog here, isn't it?", 'It works very well now.']


def scores(translations, references, tokenize='13a'):
  return [score_text(name, translations, references, tokenize) for name in metrics.NAMES]


def by_name(translations, references, tokenize='13a', target_language='de'):
  computed = [
    corpus_bleu(translations, references, tokenize),
    *other_protocols(translations, references, tokenize, target_language),
  ]
  assert len({score.name for score in computed}) == len(computed)
  return {score.name: score for score in computed}


@pytest.mark.parametrize('seed', ['12345', '7'])
def test_scores_are_sacrebleus_and_lie_in_the_intervals_of_its_samples(monkeypatch, seed):
  monkeypatch.setenv('SACREBLEU_SEED', seed)
  translations, references = TRANSLATIONS * 9, [REFERENCES * 9, TRANSLATIONS[:2] * 13 + ['x']]
  bleu, chrf, ter = all_scores = scores(translations, references)
  plain = corpus_bleu(translations, references)
  assert bleu[:4] == plain._replace(name='BLEU')[:4]
  for score, metric in zip(
    all_scores, (sacrebleu.BLEU(), sacrebleu.CHRF(word_order=2), sacrebleu.TER()), strict=True
  ):
    assert score.score == metric.corpus_score(translations, references).score
    assert score.signature == str(metric.get_signature()) and 'nrefs:2|' in score.signature
    low, high = score.interval
    # sacreBLEU's command shows half the width.
    wanted = metric.corpus_score(translations, references, n_bootstrap=1000)
    assert (high - low) / 2 == pytest.approx(wanted._ci) and low < score.score < high
  assert 'nc:6|nw:2|' in chrf.signature and 'tok:tercom|' in ter.signature


@pytest.mark.parametrize('tokenize', ['13a', 'intl', 'none', 'char'])
def test_the_other_protocols_are_those_that_the_headline_is_not(tokenize):
  names = {score.name for score in other_protocols(TRANSLATIONS, [REFERENCES], tokenize, 'de')}
  assert names == {'13a', 'intl', '13a lower-cased', 'none', 'compound-split'} - {tokenize}
  german, french = (
    by_name(TRANSLATIONS, [REFERENCES], tokenize, language) for language in ('de', 'fr')
  )
  assert french == {name: score for name, score in german.items() if name != 'compound-split'}


def test_signatures_say_what_was_done():
  computed = by_name(TRANSLATIONS, [REFERENCES, REFERENCES])
  end = f'|version:{importlib.metadata.version("sacrebleu")}'
  assert {name: score.signature.removesuffix(end) for name, score in computed.items()} == {
    '13a': 'nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp',
    'intl': 'nrefs:2|case:mixed|eff:no|tok:intl|smooth:exp',
    '13a lower-cased': 'nrefs:2|case:lc|eff:no|tok:13a|smooth:exp',
    'none': 'nrefs:2|case:mixed|eff:no|tok:none|smooth:exp',
    'compound-split': 'nrefs:2|case:mixed|eff:no|tok:moses-de+compound-split|smooth:none'
    f'|sacremoses:{importlib.metadata.version("sacremoses")}',
  }
  # Text that is tokenised already does not go through Moses.
  tokenised = by_name(TRANSLATIONS, [REFERENCES], 'none')['compound-split'].signature
  assert '|tok:compound-split|' in tokenised and 'moses' not in tokenised


def test_compounds_count_by_their_parts():
  # The tokens are: Sie sah die rot ##AT##-##AT## grüne Fahne . Only grüne is wrong. It is in 1 of
  # 8 unigrams, 2 of 7 bigrams, 3 of 6 and 3 of 5. So BLEU⁴ = 7/8 · 5/7 · 3/6 · 2/5 = 1/8.
  translation, reference = 'Sie sah die rot-grüne Fahne.', 'Sie sah die rot-weiße Fahne.'
  computed = by_name([translation], [[reference]])
  assert computed['compound-split'].score == pytest.approx(100 * (1 / 8) ** 0.25)
  assert computed['compound-split'].details.startswith('BLEU = 59.46 87.5/71.4/50.0/40.0 ')
  # The tokens are: Sie sah die rot-grüne Fahne. One is wrong, so 4/5 · 2/4 · 1/3 · 0/2. For the
  # first order without a match, sacreBLEU counts half a match.
  assert computed['none'].score == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 0.5 / 2) ** 0.25)
  # In tokenised text the full stop is one more token: 5/6 · 3/5 · 1/4 · 0/3.
  tokenised = [line.replace('.', ' .') for line in (translation, reference)]
  computed = by_name(tokenised[:1], [tokenised[1:]], 'none')
  assert computed['compound-split'].score == pytest.approx(100 * (1 / 8) ** 0.25)
  assert computed['none'].score == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25)
  assert by_name(['Eine rot-weiße Fahne.'], [['Eine Fahne.']])['compound-split'].score == 0
  # Moses would split an entity into three tokens, `&amp; quot ;`: 7 of 8 correct, not 5 of 6.
  computed = by_name(['a b c d e &quot;'], [['a b c d x &quot;']], 'none')
  assert ' 83.3/60.0/50.0/33.3 ' in computed['compound-split'].details


@pytest.mark.parametrize(('tokenize', 'warnings'), [('none', 0), ('13a', 1), ('intl', 1)])
def test_tokenised_text_gives_one_warning_unless_the_tokenizer_is_none(tokenize, warnings, caplog):
  text = ['The cat sat on the mat .'] * 100
  for score in (corpus_bleu, functools.partial(score_text, 'BLEU')):
    caplog.clear()
    score(text, [text], tokenize)
    other_protocols(text, [text], tokenize, 'de')
    assert sum('tokenized period' in record.message for record in caplog.records) == warnings


def test_text_without_spaces_is_compared_by_its_characters():
  translations, references = ['私は毎朝コーヒーを飲む。'], ['私は毎朝お茶を飲む。']
  plain, by_character = (
    scores(translations, [references], tokenize) for tokenize in ('13a', 'char')
  )
  assert plain[0].score < 1 < 30 < by_character[0].score
  assert plain[2].score == 100 > 60 > by_character[2].score
  assert 'norm:yes|' in by_character[2].signature and 'asian:yes' in by_character[2].signature


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
    assert both.sentences == pytest.approx([0 if both.name == 'TER' else 100] * 3)
  # A sentence of two words is scored by the orders that it has; a pair counts half a match.
  computed = score_text('BLEU', ['good morning', 'good day'], [['good morning'] * 2], '13a')
  assert computed.sentences == pytest.approx([100, 100 * (1 / 2 * 1 / 2) ** 0.5])


@pytest.mark.parametrize(
  ('line', 'split'),
  [
    ('rot-weiß', 'rot ##AT##-##AT## weiß'),
    ('Nord-Ost-See', 'Nord ##AT##-##AT## Ost ##AT##-##AT## See'),
    ('a-b-c', 'a ##AT##-##AT## b-c'),
    ('a-ö-c', 'a ##AT##-##AT## ö ##AT##-##AT## c'),
    ('a--b', 'a ##AT##-##AT## -b'),
    ('Hin- und Rückweg - ja', 'Hin- und Rückweg - ja'),
    ('-a-', '-a-'),
  ],
)
def test_hyphens_within_a_word_are_split(line, split):
  assert metrics.split_compounds(line) == split
