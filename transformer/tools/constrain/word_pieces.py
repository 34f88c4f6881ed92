"""Pieces and characters as parts of words."""

import unicodedata

from transformer.data.batch import BOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary


def encode_phrase(vocabulary: Vocabulary, phrase: str) -> list[int]:
  """Returns the ids of words as they stand after a space, at the beginning of a line too.

  Args:
    vocabulary: the vocabulary.
    phrase: words, which begin with no space.
  """
  ids = vocabulary.encode(phrase)
  # Some vocabularies put no space of their own before a line.
  return ids if vocabulary.piece(ids[0]).startswith(SPACE) else vocabulary.encode(f' {phrase}')


def continue_words(vocabulary: Vocabulary) -> list[bool]:
  """Returns for each piece whether it may continue the word before it.

  It begins with a letter, a digit or a combining mark; or it is a byte, which may be part of one.
  Padding and the begin token write nothing, so that another piece may continue the word.
  """
  firsts = [vocabulary.piece(token)[:1] for token in range(vocabulary.size)]
  return [token in (PAD_ID, BOS_ID) or token in BYTE_IDS or
          (token > UNK_ID and is_in_word(first)) for token, first in enumerate(firsts)]


def is_in_word(character: str) -> bool:
  """Returns whether a character is a letter, a digit or a combining mark, such as a vowel sign."""
  return character.isalnum() or unicodedata.category(character).startswith('M')
