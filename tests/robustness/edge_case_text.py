"""Kinds of edge-case text, each as the content of a file."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.sentences import MIXED_WORDS

WORDS = (
  *MIXED_WORDS,
  'grass',
  'gras',
  'women',
  'frauen',
  'bench',
  'bank',
  'zwei',
  'two',
  'climbs',
)
# Valid edge-case sentences, by their kind.
SENTENCES = {
  'NUL bytes': ['a\x00man', '\x00', '\x00\x00 dog \x00'],
  'other control characters': [
    ''.join(map(chr, range(1, 10))),
    '\x0b\x1b[31m red',
    '\x7f\x85',
  ],
  'byte order marks inside': ['\ufeffdog', 'dog\ufeff', '\ufeff'],
  'lone carriage returns': ['a\rman', '\r', 'dog\r'],
  'line and paragraph separators': [
    'a\u2028man',
    '\u2028',
    '\u2029dog\u2029',
    '\x1c\x1d\x1e',
  ],
  'marks of direction': [
    '\u200fשלום\u200e',
    '\u202edog\u202c',
    '\u2067\u2069',
    '\u200f',
  ],
  'emoji': ['👩‍👩‍👧 🇩🇪', '😀' * 20, '👍🏽 dog', '🏴󠁧󠁢󠁥󠁮󠁧󠁿'],
  'combining marks': ['e\u0301 e' + '\u0301' * 200, '\u0301', 'Z͑ͫa̓l̕g͜o'],
  'noncharacters and private ones': [
    '\ufffe\uffff',
    '\U0010ffff',
    '\ue000 \U000f2581 \ufffd',
  ],
  'what looks like markup': ['<s> </s> <pad> <unk>', '<0x41>', ' ⁇ ', '▁ ▁▁ \u2585'],
  'blank lines': ['', ' ', '\t', '\u00a0', '\u3000  '],
  'a line of 100,000 tokens': ['dog ' * 100_000],
  'a word of 100,000 letters': ['dogma' * 20_000],
  '10,000 empty lines': [''] * 10_000,
}
# Lines that are not UTF-8, by their kind.
BROKEN = {
  'a lone surrogate': b'a \xed\xa0\x80 man',
  'half a character': 'ü'.encode()[:1],
  'an overlong NUL': b'\xc0\x80',
  'Latin-1': 'läuft'.encode('latin-1'),
  'beyond Unicode': b'\xf4\x90\x80\x80',
  'UTF-16': 'dog'.encode('utf-16'),
}


class Kind(NamedTuple):
  """A kind of edge-case text: the content of a file, and the line that an error must name, or 0."""

  name: str
  file: bytes
  names_line: int = 0


def kinds() -> list[Kind]:
  """Returns all kinds, each among ordinary lines."""
  rng = random.Random(0)
  lines = [
    ' '.join(rng.choices(WORDS, k=rng.randint(2, 6))).encode() for _ in range(40)
  ]

  def file(edge_cases: Sequence[bytes]) -> bytes:
    return b'\n'.join([*lines[:20], *edge_cases, *lines[20:], b''])

  every = [
    line.encode()
    for name, edge_cases in SENTENCES.items()
    for line in edge_cases
    if name != '10,000 empty lines'
  ]
  return [
    Kind('all that UTF-8 allows, together', b'\xef\xbb\xbf' + file(every)[:-1]),
    *(
      Kind(name, file([line.encode() for line in edge_cases]))
      for name, edge_cases in SENTENCES.items()
    ),
    Kind('a byte order mark at the start', b'\xef\xbb\xbf' + file([])),
    Kind('CRLF', file([]).replace(b'\n', b'\r\n')),
    Kind('CRLF here and there', file([b'dog\r', b'red dog\r'])),
    Kind('no line feed at the end', file([])[:-1]),
    Kind('nothing but empty lines at the end', file([]) + b'\n' * 100),
    *(Kind(name, file([line]), 21) for name, line in BROKEN.items()),
  ]


def number_of_lines(data: bytes) -> int:
  """Returns the number of lines; each ends with a line feed, but the last may lack it."""
  data = data.removeprefix(b'\xef\xbb\xbf')
  return data.count(b'\n') + (data[-1:] not in (b'', b'\n'))
