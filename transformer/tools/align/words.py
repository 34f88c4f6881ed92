"""Words of lines, and the tokens that are parts of them."""

import re
from collections.abc import Sequence

import numpy as np

from transformer.data.batch import UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary

# ASCII white space, at which `bytes.split` cuts too. Any other character is part of a word, since
# tools that count words, such as other aligners, cut at no other.
_WORD = re.compile(rb'[^ \t\n\v\f\r]+')


def count_words(line: str) -> int:
  """Returns the number of words of a line: what stands between ASCII white space."""
  return len(line.encode().split())


def word_parts(pieces: Sequence[bytes]) -> np.ndarray:
  """Returns which tokens are parts of which words, by the ranges of their bytes.

  Args:
    pieces: the bytes of each token, from `piece_bytes`; the words are those that `count_words`
      counts in the text of all tokens.

  Returns:
    Boolean [tokens, words]. A token may be a part of several words, or of none.
  """
  ends = np.cumsum([0, *map(len, pieces)])
  matches = [match.span() for match in _WORD.finditer(b''.join(pieces))]
  spans = np.array(matches, np.int64).reshape(-1, 2)
  return (ends[:-1, None] < spans[None, :, 1]) & (ends[1:, None] > spans[None, :, 0])


def piece_bytes(vocabulary: Vocabulary, token: int) -> bytes:
  """Returns the UTF-8 bytes that a piece writes, with spaces as spaces; none for a control token.

  A vocabulary may begin a line with a space of its own, and it writes some rare characters in an
  escaped form. Neither changes the words of a line.
  """
  if token in BYTE_IDS:
    return bytes([token - BYTE_IDS.start])
  return b'' if token <= UNK_ID else vocabulary.piece(token).replace(SPACE, ' ').encode()
