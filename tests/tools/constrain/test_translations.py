"""Translations contain what they must, without what they must not hold, in any company."""

import dataclasses

import pytest

from tests.toy_translation import (
  DECODE,
  MAX_LENGTH,
  make_model,
  make_params,
  make_vocabulary,
  sentences,
)
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.tools.constrain.words import Words, lacks_phrase

VOCABULARY = make_vocabulary()
MODEL = make_model(VOCABULARY, layers=2)


@pytest.fixture(scope='module')
def params():
  return make_params(MODEL, width=2.0)  # Its translations have words.


@pytest.fixture(scope='module')
def translator():
  return Translator(MODEL, VOCABULARY, DECODE, MAX_LENGTH, nbest=3)


def test_avoided_words_are_in_no_translation(translator, params):
  lines = sentences(7)
  free = translator(params, lines)
  word = max(set(' '.join(answer.text for answer in free).split()), key=len)
  without = translator(params, lines, constraint=Words(VOCABULARY, avoided=[word]))
  assert not any(word in answer.text.split() for answer in without)


@pytest.mark.long
def test_phrases_are_in_the_translations_alone_and_in_company(translator, params):
  lines = [line[:13] for line in sentences(7)]  # All have the same padded length.
  phrases = [['old house'], [], ['small cat'], ['a', 'a'], [' ', ''], ['cat runs'], ['old old']]
  free = translator(params, lines)
  result = translator(params, lines, constraint=Words(VOCABULARY, phrases))
  assert sum(len(answer.nbest) for answer in result) > 7
  for before, answer, wanted in zip(free, result, phrases, strict=True):
    assert answer.nbest[0] == (answer.text, answer.score)
    assert not any(lacks_phrase(text, wanted) for text, _ in answer.nbest), answer
    # A sentence without phrases goes through the same program as before, bit for bit.
    assert answer == before or ''.join(wanted).strip()
  for number in (0, 3):
    one = slice(number, number + 1)
    assert translator(params, lines[one], constraint=Words(VOCABULARY, phrases[one])) == result[one]
  steered = translator(
    params,
    [lines[0], lines[2]],
    constraint=Words(VOCABULARY, [phrases[0], phrases[2]], ['old'], ['the tree', 'a']),
  )
  assert [
    answer.text.startswith(prefix)
    for answer, prefix in zip(steered, ['the tree', 'a'], strict=True)
  ] == [True, True]
  assert lacks_phrase(steered[0].text, phrases[0])  # It is forbidden.
  assert not lacks_phrase(steered[1].text, phrases[2])


def test_samples_cannot_contain_phrases(params):
  config = dataclasses.replace(DECODE, sample=True)
  with pytest.raises(UserError, match='leave out --sample'):
    Translator(MODEL, VOCABULARY, config, MAX_LENGTH)(
      params, ['a'], constraint=Words(VOCABULARY, [['cat']])
    )
