"""Links between words, and Pharaoh's text format: `0-0 1-2 …`, one line per pair."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from transformer.data.batch import UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary

# A link: the indices of a source word and a target word, from 0.
Link = tuple[int, int]
# Other aligners split words only at ASCII white space, as `bytes.split` does.
_WORD = re.compile(rb'[^ \t\n\v\f\r]+')


def alignment_lines(alignments: Iterable[Iterable[Link]]) -> list[str]:
  """Returns one line in Pharaoh's format per alignment."""
  return [' '.join(f'{i}-{j}' for i, j in links) for links in alignments]


def token_word_overlap(pieces: Sequence[bytes]) -> np.ndarray:
  """Returns which tokens overlap which words, bool [tokens, words], by byte ranges.

  `pieces` are from `piece_bytes`. A token may overlap several words, or none.
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
  """Returns the UTF-8 bytes of a piece, with spaces as spaces; empty for a control token."""
  if token in BYTE_IDS:
    return bytes([token - BYTE_IDS.start])
  if token <= UNK_ID:
    return b''
  return vocabulary.piece(token).replace(SPACE, ' ').encode()
