"""BLEU is sacreBLEU's, and says how it was computed."""

import pytest
import sacrebleu

from transformer.errors import UserError
from transformer.inference.bleu import corpus_bleu

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
