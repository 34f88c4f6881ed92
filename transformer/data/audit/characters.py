"""Counts the letters of a text by script, and control, invisible and broken characters.

Python knows the names of characters but not their scripts. The name of a letter begins with
the name of its script, after variants such as `ｆｕｌｌ ｗｉｄｔｈ` are resolved.
"""

import functools
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Scripts by the first word of their letters' names, and the languages that are written in them.
_LANGUAGES = {
    'LATIN': 'af az bs ca cs cy da de en eo es et eu fi fr ga gl hr hu id is it lt lv ms mt nb nl '
             'nn no pl pt ro sk sl sq sr sv sw tl tr uz vi deu eng fra ita nld por spa',
    'CYRILLIC': 'az be bg kk ky mk mn ru sr tg uk uz rus ukr', 'GREEK': 'el ell',
    'ARABIC': 'ar ckb fa ps sd ug ur ara', 'HEBREW': 'he iw yi heb', 'ARMENIAN': 'hy',
    'GEORGIAN': 'ka', 'DEVANAGARI': 'hi mr ne sa hin', 'BENGALI': 'as bn', 'GUJARATI': 'gu',
    'GURMUKHI': 'pa', 'TAMIL': 'ta', 'TELUGU': 'te', 'KANNADA': 'kn', 'MALAYALAM': 'ml',
    'SINHALA': 'si', 'THAI': 'th tha', 'LAO': 'lo lao', 'MYANMAR': 'my mya', 'KHMER': 'km khm',
    'TIBETAN': 'bo bod', 'ETHIOPIC': 'am ti', 'HIRAGANA': 'ja jpn jp', 'KATAKANA': 'ja jpn jp',
    'CJK': 'zh zho cn cmn yue ja jpn jp ko kor kr', 'HANGUL': 'ko kor kr'}
# First words of letters' names that are no scripts: the name of ʼ is MODIFIER LETTER APOSTROPHE.
_COMMON = ('MODIFIER', 'CARON', 'COMBINING', 'IDEOGRAPHIC', 'MASU', 'ROMAN', 'SPACE', 'TURNED',
           'VERTICAL')
_SHOWN = 5
_OTHER, _CONTROL, _INVISIBLE, _BROKEN, _FIRST_SCRIPT = range(5)
_KINDS = {'Cc': _CONTROL, 'Zl': _CONTROL, 'Zp': _CONTROL, 'Cf': _INVISIBLE, 'Co': _BROKEN,
          'Cs': _BROKEN}


class Counts(NamedTuple):
  """Numbers of characters in some lines; every array is int64 [lines].

  Attributes:
    control: line and paragraph separators, NUL, tab and other control characters.
    invisible: marks of direction, joiners, soft hyphens, byte order marks and the like.
    broken: U+FFFD, which replaces undecodable bytes, and private characters.
    letters: letters of any script.
    unexpected: letters of a script that the language is not written in.
    scripts: letters of all lines by script, the commonest script first.
  """

  control: np.ndarray
  invisible: np.ndarray
  broken: np.ndarray
  letters: np.ndarray
  unexpected: np.ndarray
  scripts: dict[str, int]


def scripts_of(language: str) -> frozenset[str]:
  """Returns the scripts of a language, such as `en`, `zh-CN` or `pt_BR`; none if unknown."""
  code = language.lower().replace('_', '-').split('-')[0]
  return frozenset(name for name, codes in _LANGUAGES.items() if code in codes.split())


def count(lines: Sequence[str], expected: frozenset[str]) -> Counts:
  """Counts the characters of lines by kind.

  Args:
    lines: text.
    expected: scripts from `scripts_of`; if empty, the commonest script of the lines.
  """
  names, kinds = _table()
  codes = np.frombuffer(''.join(lines).encode('utf-32-le', 'surrogatepass'), np.uint32)
  owner = np.repeat(np.arange(len(lines)), np.fromiter(map(len, lines), np.int64, len(lines)))
  kind = kinds[codes]

  def by_line(which):
    return np.bincount(owner[which], minlength=len(lines))

  found = np.bincount(kind, minlength=_FIRST_SCRIPT)[_FIRST_SCRIPT:]
  scripts = {names[i]: int(found[i]) for i in np.argsort(-found, kind='stable') if found[i]}
  expected = expected or frozenset(list(scripts)[:1])
  as_expected = np.array([_FIRST_SCRIPT + i for i, name in enumerate(names) if name in expected])
  letter = kind >= _FIRST_SCRIPT
  return Counts(*(by_line(kind == each) for each in (_CONTROL, _INVISIBLE, _BROKEN)),
                by_line(letter), by_line(letter & ~np.isin(kind, as_expected)), scripts)


def shown(text: str, width: int) -> str:
  """Returns text that fits on a line of a terminal: cut, with invisible characters escaped."""
  cut = text[:width]
  visible = ''.join(character if character.isprintable() else f'\\u{ord(character):04x}'
                    for character in cut)
  return visible + '…' * (cut != text)


def odd(text: str) -> str:
  """Returns the codes of a few control, invisible or broken characters of a text."""
  codes = sorted({ord(character) for character in text
                  if character == '\ufffd' or unicodedata.category(character) in _KINDS})
  return ' '.join(f'U+{code:04X}' for code in codes[:_SHOWN]) + ' …' * (len(codes) > _SHOWN)


@functools.cache
def _table() -> tuple[list[str], np.ndarray]:
  """Returns the names of all scripts, and the kind of every character by its code."""
  kinds = np.zeros(sys.maxunicode + 1, np.uint16)
  numbers: dict[str, int] = {}
  for code in range(sys.maxunicode + 1):
    character = chr(code)
    category = unicodedata.category(character)
    if category[0] == 'L':
      name = unicodedata.name(unicodedata.normalize('NFKC', character)[0], 'MODIFIER')
      script = name.split()[0].split('-')[0]
      if script not in _COMMON:
        kinds[code] = numbers.setdefault(script, _FIRST_SCRIPT + len(numbers))
    elif kind := _KINDS.get(category):
      kinds[code] = kind
  kinds[ord('\ufffd')] = _BROKEN
  return list(numbers), kinds
