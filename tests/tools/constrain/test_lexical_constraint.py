"""Required and avoided phrases are whole words, however they are segmented."""

import random
import re

import pytest

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError
from transformer.tools.constrain import avoidance
from transformer.tools.constrain.avoidance import build_automaton
from transformer.tools.constrain.lexical_constraint import (
  LexicalConstraint,
  continue_words,
  lacks_phrase,
)

WORDS = ['the', 'a', 'cat', 'dog', 'house', 'tree', 'cats', 'don', 'is', 'çé']
PHRASES = ['cat', 'the dog', 'é', "don't", 'ß']


@pytest.fixture(scope='module')
def vocabulary():
  rng = random.Random(0)
  return Vocabulary.train(
    (' '.join(rng.choices(WORDS, k=6)) + rng.choice(".,!-'") for _ in range(300)), 300
  )


@pytest.fixture(scope='module')
def automaton(vocabulary):
  return build_automaton(PHRASES, vocabulary)


def holds(text, phrase):
  return re.search(rf'(?<![^\W_]){re.escape(phrase)}(?![^\W_])', text) is not None


def first_forbidden(automaton, ids):
  """Returns the place of the first token that is forbidden; None if there is none."""
  state, (next_ZN, forbidden_ZN) = 0, automaton
  for place, token in enumerate(ids):
    if forbidden_ZN[state, token]:
      return place
    state = next_ZN[state, token]
  return None


def test_allowed_outputs_never_contain_an_avoided_phrase(vocabulary, automaton):
  rng, (next_ZN, forbidden_ZN) = random.Random(1), automaton
  pieces = [
    token for token in range(UNK_ID + 1, vocabulary.size) if token not in BYTE_IDS
  ]
  # Pieces that stand in the phrases, so that random text would often hold them.
  likely = [
    token for token in pieces if vocabulary.piece(token).strip('▁') in ' '.join(PHRASES)
  ]
  pieces += [PAD_ID, BOS_ID, UNK_ID] * 9
  likely += [BYTE_IDS[item] for item in ' '.join(PHRASES).encode()]
  stopped = 0
  for _ in range(3000):
    state, ids = 0, []
    for _ in range(rng.randint(1, 12)):
      token = rng.choice(likely if rng.random() < 0.8 else pieces)
      if forbidden_ZN[state, token]:
        stopped += 1
        continue
      ids.append(token)
      state = next_ZN[state, token]
    assert not forbidden_ZN[state, EOS_ID]
    text = vocabulary.decode(ids)
    assert not any(holds(text, phrase) for phrase in PHRASES), text
  assert stopped > 500


@pytest.mark.parametrize(
  'text', ['the cats', 'concat', 'a the house', 'the  dog', 'çé', 'Cat', 'is don']
)
def test_other_words_are_allowed(vocabulary, automaton, text):
  assert first_forbidden(automaton, [*vocabulary.encode(text), EOS_ID]) is None


# Pieces, and then bytes; how many of them are allowed, -1 for all but the last.
@pytest.mark.parametrize(
  ('pieces', 'spelled', 'allowed'),
  [
    ('the', '\ndog', -1),  # A line feed is written as a space.
    ('a', ' cat', -1),
    ('a', 'cat', None),  # Letters in bytes are letters.
    ('', 'é', -1),
    ('', 'the é', -1),
    ('', 'ßé', 1),
    ('', '„é', -1),
    ('„cat', '', -1),
    ('—cat', '', -1),
    ('a „cat', '', -1),
  ],
)  # The mark is spelled in bytes.
def test_bytes_are_read_as_the_text_that_they_spell(
  vocabulary, automaton, pieces, spelled, allowed
):
  ids = vocabulary.encode(pieces) if pieces else []
  ids += [BYTE_IDS[byte] for byte in spelled.encode()]
  assert any(token in BYTE_IDS for token in ids)
  wanted = len(ids) - 1 if allowed == -1 else allowed
  assert first_forbidden(automaton, ids) == wanted


def test_phrases_whose_tables_would_be_large_are_rejected(vocabulary, monkeypatch):
  monkeypatch.setattr(avoidance, '_MAX_CELLS', 2 * vocabulary.size)
  with pytest.raises(UserError, match='at most about 2 bytes of UTF-8 in total; got'):
    build_automaton(PHRASES, vocabulary)


@pytest.mark.parametrize(
  ('text', 'phrases', 'lacks'),
  [
    ('the cats', ['cat'], True),
    ('concat', ['cat'], True),
    ('the cat!', ['cat'], False),
    ('Cat', ['cat'], True),
    ('a cat is a cat', ['cat', 'a cat', 'cat '], False),
    ('a cat is', ['cat', 'cat'], False),
    ('a cat', ['a  cat'], True),
    ('', [], False),
    ('', ['a'], True),
    ('U.S. troops', ['U.S.'], False),
    ('é', ['é'], False),
    ('a', [' '], False),
    ('यह कला है', ['कल'], True),
    ('हिना', ['ना'], True),
    ('cafe\u0301', ['cafe'], True),
    ('ab ab', ['ab', 'ab'], False),
    ('xaa aa', ['aa'], False),
    ('aaa', ['aa'], True),
  ],
)
def test_a_phrase_is_whole_words(text, phrases, lacks):
  assert lacks_phrase(text, phrases) == lacks


def test_one_string_is_not_a_list_of_its_letters(vocabulary):
  for wrong in (
    {'required': ['cat']},
    {'required': 'cat'},
    {'avoided': 'cat'},
    {'prefixes': 'cat'},
  ):
    with pytest.raises(UserError, match=r"expected a list of lines.*; got 'cat'"):
      LexicalConstraint(vocabulary, **wrong)


def test_impossible_phrases_are_rejected(vocabulary):
  words = LexicalConstraint(vocabulary, [[], ['cat', 'x' * 99]])
  with pytest.raises(
    UserError,
    match=r'must appear in translation 12 must have fewer tokens than '
    r'its limit, 30; got 1\d\d; shorten',
  ):
    words.sentence_arrays(vocabulary, [30] * 2, 40, 10)


def test_pieces_that_continue_a_word_begin_with_a_part_of_one():
  trained = Vocabulary.train(['e\u0301 ' * 9 + '٣ 5 a . ba'] * 3, 264 + 9)
  continues = {
    trained.piece(token): flag for token, flag in enumerate(continue_words(trained))
  }
  for piece in ('\u0301', '٣', '5', 'a', '<pad>', '<s>', '<0x41>', '<0xC3>'):
    assert continues[piece], piece
  for piece in ('▁', '.', '</s>', '<unk>'):
    assert not continues[piece], piece
