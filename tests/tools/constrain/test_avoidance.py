"""Avoided phrases never appear as whole words, however they are segmented."""

import random
import re

import numpy as np
import pytest

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError
from transformer.tools.constrain import avoidance
from transformer.tools.constrain.avoidance import avoid

WORDS = ['the', 'a', 'cat', 'dog', 'house', 'tree', 'cats', 'don', 'is', 'çé']
PHRASES = ['cat', 'the dog', 'é', "don't", 'ß']


@pytest.fixture(scope='module')
def vocabulary():
  rng = random.Random(0)
  return Vocabulary.train((' '.join(rng.choices(WORDS, k=6)) + rng.choice(".,!-'")
                           for _ in range(300)), 300)


@pytest.fixture(scope='module')
def automaton(vocabulary):
  return avoid(PHRASES, vocabulary)


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


def test_what_is_allowed_never_holds_a_phrase(vocabulary, automaton):
  rng, (next_ZN, forbidden_ZN) = random.Random(1), automaton
  pieces = [token for token in range(UNK_ID + 1, vocabulary.size) if token not in BYTE_IDS]
  # Pieces that stand in the phrases, so that random text would often hold them.
  likely = [token for token in pieces if vocabulary.piece(token).strip('▁') in ' '.join(PHRASES)]
  pieces += [PAD_ID, BOS_ID, UNK_ID] * 9
  likely += [BYTE_IDS[each] for each in ' '.join(PHRASES).encode()]
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


@pytest.mark.parametrize('text', ['the cats', 'concat', 'a the house', 'the  dog', 'çé', 'Cat',
                                  'is don'])
def test_other_words_are_allowed(vocabulary, automaton, text):
  assert first_forbidden(automaton, [*vocabulary.encode(text), EOS_ID]) is None


@pytest.mark.parametrize('text', ['cat', 'a cat is', '-cat', 'cat!', 'the the dog', "a don't", 'ß',
                                  'a ß!'])
def test_phrases_are_forbidden_with_their_last_piece(vocabulary, automaton, text):
  ids = vocabulary.encode(text)
  place = first_forbidden(automaton, ids)
  assert any(holds(vocabulary.decode(ids[:place + 1]), phrase) for phrase in PHRASES)


def test_a_vowel_sign_is_a_part_of_its_word():
  vocabulary = Vocabulary.train(['यह कला है', 'यह हिना है', 'कल वह था'] * 40, 290)
  automaton = avoid(['कल', 'ना'], vocabulary)
  for text, forbidden in (('यह कला है', False), ('यह हिना है', False), ('यह कल है', True)):
    assert (first_forbidden(automaton, vocabulary.encode(text)) is not None) is forbidden, text


# Pieces, and then bytes; how many of them are allowed, -1 for all but the last.
@pytest.mark.parametrize(('pieces', 'spelt', 'allowed'), [
    ('the', '\ndog', -1),  # A line feed is written as a space.
    ('a', ' cat', -1), ('a', 'cat', None),  # Letters in bytes are letters.
    ('', 'é', -1), ('', 'the é', -1), ('', 'ßé', 1), ('', '„é', -1),
    ('„cat', '', -1), ('—cat', '', -1), ('a „cat', '', -1)])  # The mark is spelt in bytes.
def test_bytes_are_read_as_the_text_that_they_spell(vocabulary, automaton, pieces, spelt, allowed):
  ids = vocabulary.encode(pieces) if pieces else []
  ids += [BYTE_IDS[byte] for byte in spelt.encode()]
  assert any(token in BYTE_IDS for token in ids)
  wanted = len(ids) - 1 if allowed == -1 else allowed
  assert first_forbidden(automaton, ids) == wanted


def test_the_tables_stay_small(vocabulary, automaton, monkeypatch):
  next_ZN, forbidden_ZN = automaton
  assert next_ZN.shape == forbidden_ZN.shape
  assert not forbidden_ZN[:, [BOS_ID, EOS_ID]].any()
  assert np.unique(next_ZN).tolist() == list(range(len(next_ZN)))
  monkeypatch.setattr(avoidance, '_MOST_CELLS', 2 * vocabulary.size)
  with pytest.raises(UserError, match='at most about 2 bytes of UTF-8 in all; there are'):
    avoid(PHRASES, vocabulary)
