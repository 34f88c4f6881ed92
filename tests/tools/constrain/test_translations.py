"""Translations contain required phrases and no forbidden ones, in any batch."""

import dataclasses

import numpy as np
import pytest

from tests.toy_translation import (
  DECODE,
  make_model,
  make_params,
  make_translator,
  make_vocabulary,
  sentences,
)
from transformer.data.batch import PAD_ID
from transformer.errors import UserError
from transformer.tools.constrain.lexical_constraint import (
  LexicalConstraint,
  lacks_phrase,
)

VOCABULARY = make_vocabulary()
MODEL = make_model(VOCABULARY, layers=2)


@pytest.fixture(scope='module')
def params():
  return make_params(MODEL, width=2.0)  # Its translations have words.


@pytest.fixture(scope='module')
def translator():
  return make_translator(MODEL, VOCABULARY, dataclasses.replace(DECODE, nbest=3))


def test_avoided_words_are_in_no_translation(translator, params):
  lines = sentences(7)
  free = translator(params, lines)
  word = max(set(' '.join(answer.text for answer in free).split()), key=len)
  without = translator(
    params, lines, constraint=LexicalConstraint(VOCABULARY, avoided=[word])
  )
  assert not any(word in answer.text.split() for answer in without)


@pytest.mark.long
def test_phrases_are_in_the_translations_in_any_batch(translator, params):
  lines = [line[:13] for line in sentences(7)]  # All have the same padded length.
  phrases = [
    ['old house'],
    [],
    ['small cat'],
    ['a', 'a'],
    [' ', ''],
    ['cat runs'],
    ['old old'],
  ]
  free = translator(params, lines)
  result = translator(params, lines, constraint=LexicalConstraint(VOCABULARY, phrases))
  assert sum(len(answer.nbest) for answer in result) > 7
  for before, answer, wanted in zip(free, result, phrases, strict=True):
    assert answer.nbest[0] == (answer.text, answer.score)
    assert not any(lacks_phrase(text, wanted) for text, _ in answer.nbest), answer
    # A sentence without phrases goes through the same program as before, bit for bit.
    assert answer == before or ''.join(wanted).strip()
  for number in (0, 3):
    one = slice(number, number + 1)
    assert (
      translator(
        params, lines[one], constraint=LexicalConstraint(VOCABULARY, phrases[one])
      )
      == result[one]
    )
  steered = translator(
    params,
    [lines[0], lines[2]],
    constraint=LexicalConstraint(
      VOCABULARY, [phrases[0], phrases[2]], ['old'], ['the tree', 'a']
    ),
  )
  assert [
    answer.text.startswith(prefix)
    for answer, prefix in zip(steered, ['the tree', 'a'], strict=True)
  ] == [True, True]
  assert lacks_phrase(steered[0].text, phrases[0])  # It is forbidden.
  assert not lacks_phrase(steered[1].text, phrases[2])


def test_samples_cannot_contain_phrases(params):
  config = dataclasses.replace(DECODE, sample=True)
  with pytest.raises(UserError, match='remove --sample'):
    make_translator(MODEL, VOCABULARY, config)(
      params, ['a'], constraint=LexicalConstraint(VOCABULARY, [['cat']])
    )


def test_prefixes_hold_and_do_not_change_other_sentences(translator, params):
  lines = sentences(7)
  prefixes = ['', 'the old ca', '', 'a', 'trees', '', 'x y']
  free = translator(params, lines)
  begun = translator(
    params, lines, constraint=LexicalConstraint(VOCABULARY, prefixes=prefixes)
  )
  for before, answer, prefix in zip(free, begun, prefixes, strict=True):
    assert answer.text.startswith(prefix)
    # A free sentence goes through the same program as before, bit for bit.
    assert (answer == before) == (prefix == '')
  one = LexicalConstraint(VOCABULARY, prefixes=prefixes[1:2])
  assert translator(params, lines[1:2], constraint=one) == begun[1:2]
  long = LexicalConstraint(VOCABULARY, prefixes=['', 'x' * 99, *[''] * 5])
  with pytest.raises(
    UserError, match=r'beginning of translation 12 must have fewer tokens'
  ):
    translator(params, lines, 10, long)
  with pytest.raises(UserError, match='got 1 prefixes for 7 lines'):
    translator(params, lines, constraint=LexicalConstraint(VOCABULARY, prefixes=['a']))


def test_a_prefix_leaves_a_position_for_eos():
  (count,) = map(len, VOCABULARY.encode_batch(['the old cat']))
  words = LexicalConstraint(VOCABULARY, prefixes=['the old cat'])
  ((tokens_P, _),) = words.sentence_arrays(VOCABULARY, [count + 1], count + 3, 0)
  assert len(tokens_P) == count + 3 and np.count_nonzero(tokens_P != PAD_ID) == count
  with pytest.raises(
    UserError, match=f'translation 6 must have .* limit, {count}; got {count};'
  ):
    words.sentence_arrays(VOCABULARY, [count], count + 3, 5)
