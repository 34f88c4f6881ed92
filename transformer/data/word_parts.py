"""What a line is made of: words, their tokens, and characters without any."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from transformer.errors import UserError

# ASCII white space, at which `bytes.split` cuts too. Any other character is part of a word, since
# tools that count words, such as aligners, cut at no other.
_WORD = re.compile(rb'[^ \t\n\v\f\r]+')
# White space, control characters, and what Unicode calls ignorable by default, such as a zero-width
# space or a mark of byte order.
_INVISIBLE = re.compile(
    r'[\s\0-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f'
    r'\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3'
    r'\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*')


def is_blank(line: str) -> bool:
  """Returns whether a line has nothing to read: no character, or invisible ones alone."""
  return _INVISIBLE.fullmatch(line) is not None


def is_in_word(character: str) -> bool:
  """Returns whether a character is a letter, a digit or a combining mark, such as a vowel sign."""
  return character.isalnum() or unicodedata.category(character).startswith('M')


def check_several(lines: Sequence[str]):
  """Refuses one line in place of several, since its letters would count as lines.

  Raises:
    UserError: there is one.
  """
  if isinstance(lines, str):
    raise UserError(f'several lines are needed, such as a list; got one string, {lines[:40]!r}; '
                    f'put it into brackets')


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
