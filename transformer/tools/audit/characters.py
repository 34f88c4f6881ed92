"""Counts the letters of a text by script, and the characters that no text should have.

Python knows the names of characters but not their scripts. The name of a letter begins with
the name of its script, after variants such as `ｆｕｌｌ ｗｉｄｔｈ` are resolved.
"""

import functools
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np

# First words of letters' names that are no scripts: the name of ʼ is MODIFIER LETTER APOSTROPHE.
_COMMON = (
  'MODIFIER',
  'CARON',
  'COMBINING',
  'IDEOGRAPHIC',
  'MASU',
  'ROMAN',
  'SPACE',
  'TURNED',
  'VERTICAL',
)
# Control characters and separators, invisible marks, private characters and half surrogates.
_ODD_CATEGORIES = ('Cc', 'Zl', 'Zp', 'Cf', 'Co', 'Cs')
_REPLACEMENT = '\ufffd'  # Takes the place of bytes that could not be decoded.
_SHOWN = 5
OTHER, ODD, FIRST_SCRIPT = range(3)


def count_kinds(lines: Sequence[str]) -> np.ndarray:
  """Returns the numbers of characters of `OTHER`, `ODD` and all scripts, int64 [lines, kinds]."""
  names, kinds = script_table()
  codes = np.frombuffer(''.join(lines).encode('utf-32-le', 'surrogatepass'), np.uint32)
  lengths = np.array([*map(len, lines)], np.int64)
  owner = np.repeat(np.arange(len(lines)), lengths)
  width = FIRST_SCRIPT + len(names)
  counts = np.bincount(owner * width + kinds[codes], minlength=len(lines) * width)
  return counts.reshape(len(lines), width)


def shown(text: str, width: int) -> str:
  """Returns text that fits on a line of a terminal: cut, with invisible characters escaped."""
  visible = ''.join(map(_visible, text[:width]))
  return f'{visible}…' if len(text) > width else visible


def _visible(character: str) -> str:
  return character if character.isprintable() else f'\\u{ord(character):04x}'


def odd_codes(text: str) -> str:
  """Returns the codes of a few odd characters of a text, such as `U+200B`."""
  odd = sorted(filter(_is_odd, set(text)))
  codes = [f'U+{ord(character):04X}' for character in odd]
  if len(codes) > _SHOWN:
    codes[_SHOWN:] = ['…']
  return ' '.join(codes)


def _is_odd(character: str) -> bool:
  return character == _REPLACEMENT or unicodedata.category(character) in _ODD_CATEGORIES


@functools.cache
def script_table() -> tuple[list[str], np.ndarray]:
  """Returns the names of all scripts, such as LATIN, and the kinds of characters by their codes."""
  kinds = np.full(sys.maxunicode + 1, OTHER, np.int64)
  numbers: dict[str, int] = {}
  for code, character in enumerate(map(chr, range(sys.maxunicode + 1))):
    if _is_odd(character):
      kinds[code] = ODD
    elif character.isalpha():
      name = unicodedata.name(unicodedata.normalize('NFKC', character)[0], 'MODIFIER')
      script = name.split()[0].split('-')[0]
      if script not in _COMMON:
        kinds[code] = numbers.setdefault(script, FIRST_SCRIPT + len(numbers))
  return list(numbers), kinds
