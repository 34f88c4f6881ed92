"""Links between words, and their text in Pharaoh's format: `0-0 1-2 …`, a line for each pair."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from transformer.data.batch import UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary

# A link: the number of a source word and of a target word, both from 0.
Link = tuple[int, int]
# Other aligners split words only at ASCII white space, and so does `bytes.split`.
_WORD = re.compile(rb'[^ \t\n\v\f\r]+')


def alignment_lines(alignments: Iterable[Iterable[Link]]) -> list[str]:
  """Returns a line of Pharaoh's format for each alignment."""
  return [' '.join(f'{i}-{j}' for i, j in links) for links in alignments]


def word_parts(pieces: Sequence[bytes]) -> np.ndarray:
  """Returns which tokens are parts of which words, bool [tokens, words], by ranges of bytes.

  `pieces` are from `piece_bytes`. A token may be a part of several words, or of none.
  """
  words = list(_WORD.finditer(b''.join(pieces)))
  parts = np.zeros((len(pieces), len(words)), bool)
  start = 0
  for token, piece in enumerate(pieces):
    stop = start + len(piece)
    parts[token] = [start < word.end() and word.start() < stop for word in words]
    start = stop
  return parts


def piece_bytes(vocabulary: Vocabulary, token: int) -> bytes:
  """Returns the UTF-8 bytes that a piece writes, spaces as spaces; none for a control token."""
  if token in BYTE_IDS:
    return bytes([token - BYTE_IDS.start])
  if token <= UNK_ID:
    return b''
  return vocabulary.piece(token).replace(SPACE, ' ').encode()
