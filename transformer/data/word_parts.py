"""The words of a line, and the tokens that they are made of."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

# ASCII white space, at which `bytes.split` cuts too. Any other character is part of a word, since
# tools that count words, such as aligners, cut at no other.
_WORD = re.compile(rb'[^ \t\n\v\f\r]+')


def is_in_word(character: str) -> bool:
  """Returns whether a character is a letter, a digit or a combining mark, such as a vowel sign."""
  return character.isalnum() or unicodedata.category(character).startswith('M')


def count_words(line: str) -> int:
  """Returns the number of words of a line: what stands between ASCII white space."""
  return len(line.encode().split())


def word_parts(pieces: Sequence[bytes]) -> np.ndarray:
  """Returns which tokens are parts of which words, by the ranges of their bytes.

  Args:
    pieces: the bytes of each token, from `Vocabulary.piece_bytes`; the words are those that
      `count_words` counts in the text of all tokens.

  Returns:
    Boolean [tokens, words]. A token may be a part of several words, or of none.
  """
  ends = np.cumsum([0, *map(len, pieces)])
  found = [match.span() for match in _WORD.finditer(b''.join(pieces))]
  spans = np.array(found, np.int64).reshape(-1, 2)
  return (ends[:-1, None] < spans[None, :, 1]) & (ends[1:, None] > spans[None, :, 0])
