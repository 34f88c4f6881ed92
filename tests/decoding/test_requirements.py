"""Phrases are found as whole words, and each sentence's arrays depend on its phrases alone."""

import random

import numpy as np
import pytest

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.decoding.requirements import (
  Demand,
  Requirements,
  encode_requirements,
  lacks_phrase,
  warn_of_lacking,
)

WORDS = ['the', 'a', 'cat', 'dog', 'house', 'tree', 'cats', 'is']


@pytest.fixture(scope='module')
def vocabulary():
  rng = random.Random(0)
  return Vocabulary.train((' '.join(rng.choices(WORDS, k=6)) for _ in range(300)), 290)


@pytest.mark.parametrize(('text', 'phrases', 'lacks'), [
    ('the cats', ['cat'], True), ('concat', ['cat'], True), ('the cat!', ['cat'], False),
    ('Cat', ['cat'], True), ('a cat is a cat', ['cat', 'a cat', 'cat '], False),
    ('a cat is', ['cat', 'cat'], True), ('a cat', ['a  cat'], True), ('', [], False),
    ('', ['a'], True), ('U.S. troops', ['U.S.'], False), ('é', ['é'], False), ('a', [' '], False),
    ('यह कला है', ['कल'], True), ('हिना', ['ना'], True), ('cafe\u0301', ['cafe'], True),
    ('ab ab', ['ab', 'ab'], False), ('xaa aa', ['aa'], False), ('aaa', ['aa'], True)])
def test_a_phrase_is_whole_words_as_often_as_it_is_asked_for(text, phrases, lacks):
  assert lacks_phrase(text, phrases) == lacks


def test_arrays_have_the_shape_of_the_demand_of_a_sentence(vocabulary):
  phrases = [[], ['cat'], ['cat', 'ß', ' the dog\u00a0!'], ['', ' ']]
  required = encode_requirements(Requirements(['', '', 'the', ''], None, phrases), vocabulary,
                                 [30] * 4)
  lengths = [len(ids) for ids in required.phrases[2]]
  assert [len(each) for each in required.phrases] == [0, 1, 3, 0] and max(lengths) in (5, 6, 7, 8)
  assert [required.demand(sentence) for sentence in range(4)] == [
      Demand(False, None), Demand(False, (1, 1)), Demand(True, (4, 8)), Demand(False, None)]
  steering, found = required.arrays(required.demand(2), [2], 3, 11)
  assert steering.prefix_BP.shape == (3, 11) and found.tokens_BJL.shape == (3, 4, 8)
  assert [vocabulary.decode(tokens[:length]) for tokens, length in zip(
      found.tokens_BJL[0], lengths, strict=False)] == ['cat', 'ß', 'the dog\u00a0!']
  assert not found.tokens_BJL[1:].any() and found.continues_N.shape == (vocabulary.size,)
  assert required.arrays(Demand(False, None), [0], 3, 11) == (None, None)


def test_a_warning_counts_the_sentences_that_lack_a_phrase(caplog):
  warn_of_lacking([['a cat'], ['x']], [['cat'], []])
  warn_of_lacking([['a cat']], [])
  assert not caplog.records
  warn_of_lacking([['a cat', 'a dog'], ['x'], ['cat']], [['cat'], [], ['cat']])
  assert [record.getMessage() for record in caplog.records] == [
      '1 of 3 translations lack words that must appear; they ended at the limit of length, '
      'other flags forbid the words, or the line is blank']


def test_space_around_a_prefix_is_no_part_of_it(vocabulary):
  required = encode_requirements(Requirements(['the cat', ' the cat ', '  ']), vocabulary, [30] * 3)
  assert required.prefixes[0] == required.prefixes[1] and not required.prefixes[2]
  assert not required.demand(2).steered


def test_nothing_is_required_by_default(vocabulary):
  required = encode_requirements(Requirements(), vocabulary, [9, 9])
  assert required.demand(1) == Demand(False, None) and required.continues_N is None
  np.testing.assert_equal(required.prefixes, [[], []])
