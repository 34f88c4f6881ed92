"""Phrases are found as whole words, and each sentence's arrays depend on its phrases alone."""

import io
import random

import pytest
import sentencepiece

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.tools.constrain.words import (
  Words,
  continue_words,
  encode_phrase,
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


def test_arrays_have_the_shape_of_the_demands_of_a_sentence(vocabulary):
  phrases = [[], ['cat'], ['cat', 'ß', ' the dog\u00a0!'], ['', ' ']]
  words = Words(vocabulary, phrases, prefixes=['', '', ' the ', '  '])
  free, one, several, blank = words.rows(vocabulary, [30] * 4, 31, 0)
  assert free is blank is None
  assert one[0] is None and one[1].shape == (1, 1)
  prefix_P, tokens_JL = several
  assert prefix_P.shape == (31,) and tokens_JL.shape == (4, 8)
  assert vocabulary.decode(prefix_P) == 'the'
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


def test_a_phrase_begins_a_word(vocabulary):
  assert encode_phrase(vocabulary, 'the dog') == vocabulary.encode('the dog')
  # A vocabulary that puts no space before a line: the phrase has one, wherever it stands.
  bare = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(['the dog is a cat'] * 9), model_writer=bare, model_type='bpe',
      vocab_size=285, byte_fallback=True, normalization_rule_name='identity',
      remove_extra_whitespaces=False, add_dummy_prefix=False, pad_id=PAD_ID, bos_id=BOS_ID,
      eos_id=EOS_ID, unk_id=UNK_ID, minloglevel=2, hard_vocab_limit=False)
  bare = Vocabulary(bare.getvalue())
  assert bare.decode(bare.encode('the dog')) == 'the dog'
  assert bare.decode(encode_phrase(bare, 'the dog')) == ' the dog'


def test_pieces_that_continue_a_word_begin_with_a_part_of_one():
  trained = Vocabulary.train(['e\u0301 ' * 9 + '٣ 5 a . ba'] * 3, 264 + 9)
  continues = {trained.piece(token): flag for token, flag in enumerate(continue_words(trained))}
  for piece in ('\u0301', '٣', '5', 'a', '<pad>', '<s>', '<0x41>', '<0xC3>'):
    assert continues[piece], piece
  for piece in ('▁', '.', '</s>', '<unk>'):
    assert not continues[piece], piece
