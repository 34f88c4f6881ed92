"""Links between words, and their text in Pharaoh's format: `0-0 1-2 …`, a line for each pair."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.batch import UNK_ID
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary
from transformer.errors import UserError, shown
from transformer.evaluation.texts import read_beside

# A link: the number of a source word and of a target word, both from 0.
Link = tuple[int, int]
_LINK = re.compile(r'(\d{1,9})([-?p])(\d{1,9})', re.ASCII)
# Other aligners cut words at ASCII white space alone, and so does `bytes.split`.
_WORD = re.compile(rb'[^ \t\n\v\f\r]+')


class GoldLinks(NamedTuple):
  """The links that people drew between two sentences."""

  sure: frozenset[Link]
  possible: frozenset[Link]  # the sure ones included


def alignment_lines(alignments: Iterable[Iterable[Link]]) -> list[str]:
  """Returns a line of Pharaoh's format for each alignment."""
  return [' '.join(f'{i}-{j}' for i, j in links) for links in alignments]


def read_gold(
  path: str | os.PathLike, sources: Sequence[str], targets: Sequence[str]
) -> list[GoldLinks]:
  """Reads the gold alignment of each pair of a source and its translation.

  A link is `I-J` if it is sure, and `I?J` or `IpJ` if it is possible; words are counted from 0.
  """
  gold = []
  lines = read_beside('gold', path, sources)
  for number, (line, source, target) in enumerate(
    zip(lines, sources, targets, strict=True), 1
  ):
    source_words = len(source.encode().split())
    target_words = len(target.encode().split())
    sure = set()
    possible = set()
    for text in line.split():
      match = _LINK.fullmatch(text)
      if not match or int(match[1]) >= source_words or int(match[3]) >= target_words:
        raise UserError(
          f'{path}:{number}: a link must be I-J if it is sure, or I?J or IpJ if it '
          f'is possible, of one of the {source_words} words I of the source and the '
          f'{target_words} words J of the target, counted from 0; got {shown(text)}'
        )
      link = (int(match[1]), int(match[3]))
      possible.add(link)
      if match[2] == '-':
        sure.add(link)
    gold.append(GoldLinks(frozenset(sure), frozenset(possible)))
  return gold


def word_parts(pieces: Sequence[bytes]) -> np.ndarray:
  """Returns which tokens are parts of which words, bool [tokens, words], by ranges of bytes.

  `pieces` are from `piece_bytes`. A token may be a part of several words, or of none.
  """
  ends = np.cumsum([0, *map(len, pieces)])
  matches = [match.span() for match in _WORD.finditer(b''.join(pieces))]
  starts_J, stops_J = np.array(matches, np.int64).reshape(-1, 2).T
  return (ends[:-1, None] < stops_J[None]) & (ends[1:, None] > starts_J[None])


def piece_bytes(vocabulary: Vocabulary, token: int) -> bytes:
  """Returns the UTF-8 bytes that a piece writes, spaces as spaces; none for a control token."""
  if token in BYTE_IDS:
    return bytes([token - BYTE_IDS.start])
  if token <= UNK_ID:
    return b''
  return vocabulary.piece(token).replace(SPACE, ' ').encode()
