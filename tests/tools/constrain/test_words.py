"""Phrases are found as whole words, and each sentence's arrays depend on its phrases alone."""

import random

import numpy as np
import pytest

from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.constrain.words import Words, lacks_phrase, warn_of_lacking

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


def test_arrays_have_the_shape_of_the_demands_of_a_sentence(vocabulary):
  phrases = [[], ['cat'], ['cat', 'ß', ' the dog\u00a0!'], ['', ' ']]
  words = Words(vocabulary, phrases, prefixes=['', '', 'the', ''])
  free, one, several, blank = words.rows(vocabulary, [30] * 4, 31, 0)
  assert free is blank is None
  assert one[0] is None and one[1].shape == (1, 1)
  prefix_P, tokens_JL = several
  assert prefix_P.shape == (31,) and tokens_JL.shape == (4, 8)
  assert [vocabulary.decode(tokens) for tokens in tokens_JL] == ['cat', 'ß', 'the dog\u00a0!', '']
  automaton, continues_N = words.tables
  assert automaton is None and continues_N.shape == (vocabulary.size,)
  # What is avoided is avoided in every sentence.
  assert all(row[0].shape == (31,) for row in Words(
      vocabulary, phrases, ['dog']).rows(vocabulary, [30] * 4, 31, 0))


def test_a_warning_counts_the_sentences_that_lack_a_phrase(caplog):
  warn_of_lacking([['a cat'], ['x']], [['cat'], []])
  warn_of_lacking([['a cat']], [])
  assert not caplog.records
  warn_of_lacking([['a cat', 'a dog'], ['x'], ['cat']], [['cat'], [], ['cat']])
  assert [record.getMessage() for record in caplog.records] == [
      '1 of 3 translations lack words that must appear; they ended at the limit of length, '
      'other flags forbid the words, or the line is blank']


def test_space_around_a_prefix_is_no_part_of_it(vocabulary):
  first, second, blank = Words(vocabulary, prefixes=['the cat', ' the cat ', '  ']).rows(
      vocabulary, [30] * 3, 30, 0)
  np.testing.assert_array_equal(first[0], second[0])
  assert blank is None


def test_one_string_is_not_a_list_of_its_letters(vocabulary):
  for wrong in ({'required': ['cat']}, {'required': 'cat'}, {'avoided': 'cat'},
                {'prefixes': 'cat'}):
    with pytest.raises(UserError, match=r"several lines .* got one string, 'cat'; put"):
      Words(vocabulary, **wrong)


def test_phrases_that_cannot_be_met_are_refused(vocabulary):
  words = Words(vocabulary, [[], ['cat', 'x' * 99]])
  with pytest.raises(UserError, match=r'must appear in translation 12 must have fewer tokens than '
                                      r'its limit, 30; got 1\d\d; shorten'):
    words.rows(vocabulary, [30] * 2, 40, 10)
