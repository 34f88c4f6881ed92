"""Word alignments as text: Pharaoh's format, `0-0 1-2 …`, a line for each pair of sentences."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from transformer.data.text.text_files import read_lines
from transformer.errors import UserError
from transformer.tools.align.words import count_words

# A link: the number of a source word and of a target word, both from 0.
Link = tuple[int, int]
_LINK = re.compile(r'(\d{1,9})([-?p])(\d{1,9})', re.ASCII)


class GoldLinks(NamedTuple):
  """The links that people drew between two sentences.

  Attributes:
    sure: links that an alignment should have.
    possible: links that it may have, the sure ones included.
  """

  sure: frozenset[Link]
  possible: frozenset[Link]


def alignment_lines(alignments: Iterable[Iterable[Link]]) -> list[str]:
  """Returns a line of Pharaoh's format for each alignment."""
  return [' '.join(f'{i}-{j}' for i, j in links) for links in alignments]


def read_gold(path: str | os.PathLike, sources: Sequence[str],
              targets: Sequence[str]) -> list[GoldLinks]:
  """Reads the gold alignment of each pair of lines.

  A link is `I-J` if it is sure, and `I?J` or `IpJ` if it is possible; words are counted from 0.

  Args:
    path: the file, a line for each pair.
    sources: lines of text.
    targets: a translation of each.

  Raises:
    UserError: the file cannot be read or has another number of lines; a link is malformed, or
      one of its words is not in its line.
  """
  lines = read_lines(path)
  if len(lines) != len(sources):
    raise UserError(f'a gold alignment must have a line for each pair of sentences; there are '
                    f'{len(sources)} pairs, {path} has {len(lines)} lines')
  return [_parse(line, f'{path}:{number}', (count_words(source), count_words(target)))
          for number, (line, source, target) in enumerate(
              zip(lines, sources, targets, strict=True), 1)]


def _parse(line: str, place: str, sizes: tuple[int, int]) -> GoldLinks:
  """Parses the links between two sentences; `place` is the file and the line, for errors."""
  sure, possible = set(), set()
  for text in line.split():
    if not (match := _LINK.fullmatch(text)):
      raise UserError(f'{place}: a link must be I-J if it is sure, and I?J or IpJ if it is '
                      f'possible, of a source word I and a target word J; got {text!r}')
    link = int(match[1]), int(match[3])
    if link[0] >= sizes[0] or link[1] >= sizes[1]:
      raise UserError(f'{place}: the link {text} must join one of the {sizes[0]} words of the '
                      f'source to one of the {sizes[1]} of the target; count words from 0, between '
                      f'white space')
    possible.add(link)
    if match[2] == '-':
      sure.add(link)
  return GoldLinks(frozenset(sure), frozenset(possible))
