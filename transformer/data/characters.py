"""What the characters of a text are: letters of which script, or none that a sentence needs.

Python knows the names of characters and not their scripts; a letter's name begins
with its script's, once variants such as `ｆｕｌｌ ｗｉｄｔｈ` are resolved.
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
    'SINHALA': 'si', 'THAI': 'th', 'LAO': 'lo', 'MYANMAR': 'my', 'KHMER': 'km',
    'TIBETAN': 'bo', 'ETHIOPIC': 'am ti', 'CJK': 'ja ko zh jpn kor zho', 'HIRAGANA': 'ja jpn',
    'KATAKANA': 'ja jpn', 'HANGUL': 'ko kor'}
# Names of letters that belong to any script, such as ʼ, or to none.
_COMMON = ('MODIFIER', 'CARON', 'COMBINING', 'IDEOGRAPHIC', 'MASU', 'ROMAN', 'SPACE', 'TURNED',
           'VERTICAL')
_SHOWN = 5
_OTHER, _CONTROL, _INVISIBLE, _BROKEN, _FIRST_SCRIPT = range(5)
_KINDS = {'Cc': _CONTROL, 'Zl': _CONTROL, 'Zp': _CONTROL, 'Cf': _INVISIBLE, 'Co': _BROKEN,
          'Cs': _BROKEN}


class Counts(NamedTuple):
  """The characters of some lines; every array is int64 [lines].

  Attributes:
    control: line and paragraph separators, NUL, tab and other control characters.
    invisible: marks of direction, joiners, soft hyphens, byte order marks and the like.
    broken: U+FFFD, which stands for what could not be decoded, and private characters.
    letters: of any script.
    unexpected: letters of a script that the language is not written in.
    scripts: how many letters of all lines each script has, by name, the commonest first.
  """

  control: np.ndarray
  invisible: np.ndarray
  broken: np.ndarray
  letters: np.ndarray
  unexpected: np.ndarray
  scripts: dict[str, int]


def scripts_of(language: str) -> frozenset[str]:
  """The scripts that a language is written in; none if it is not known here.

  Args:
    language: a code such as `en`, `zh-CN` or `pt_BR`.
  """
  code = language.lower().replace('_', '-').split('-')[0]
  return frozenset(name for name, codes in _LANGUAGES.items() if code in codes.split())


def count(lines: Sequence[str], expected: frozenset[str]) -> Counts:
  """Counts the characters of lines by what they are.

  Args:
    lines: text.
    expected: scripts, as `scripts_of` names them; if there are none, the commonest
      of these lines is expected.

  Returns:
    `Counts`.
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
  """Text that can be printed in a line of a terminal: cut, and what cannot be seen escaped."""
  cut = text[:width]
  visible = ''.join(character if character.isprintable() else f'\\u{ord(character):04x}'
                    for character in cut)
  return visible + '…' * (cut != text)


def odd(text: str) -> str:
  """The codes of the characters of a text that are not letters, signs or spaces, a few of them."""
  codes = sorted({ord(character) for character in text
                  if character == '\ufffd' or unicodedata.category(character) in _KINDS})
  return ' '.join(f'U+{code:04X}' for code in codes[:_SHOWN]) + ' …' * (len(codes) > _SHOWN)


@functools.cache
def _table() -> tuple[list[str], np.ndarray]:
  """The names of all scripts, and the kind of every character by its code."""
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
