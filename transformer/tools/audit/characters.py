"""The scripts of letters, and characters that no text should contain.

Python has the names of characters, but not their scripts. The name of a letter starts with the name
of its script, after variants such as `ｆｕｌｌ ｗｉｄｔｈ` are normalized.
"""

import collections
import functools
import unicodedata

# First words of letter names that are not scripts: the name of ʼ is MODIFIER LETTER APOSTROPHE.
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
# Control characters and separators, invisible marks, private use and surrogates.
_ODD_CATEGORIES = ('Cc', 'Zl', 'Zp', 'Cf', 'Co', 'Cs')
_REPLACEMENT = '\ufffd'  # Replaces bytes that could not be decoded.


def count_scripts(line: str) -> collections.Counter[str]:
  """Returns the number of letters per script, such as LATIN."""
  counts = collections.Counter(map(_script_of, line))
  del counts['']
  return counts


@functools.cache
def _script_of(character: str) -> str:
  """Returns the script of a letter; '' for other characters."""
  if not character.isalpha():
    return ''
  base = unicodedata.normalize('NFKC', character)[0]
  first_word = unicodedata.name(base, '').partition(' ')[0]
  script = first_word.partition('-')[0]
  return '' if script in _COMMON else script


def has_odd_characters(line: str) -> bool:
  """Returns whether a line has control, invisible, private-use or broken characters."""
  return any(map(_is_odd, set(line)))


@functools.cache
def _is_odd(character: str) -> bool:
  return character == _REPLACEMENT or unicodedata.category(character) in _ODD_CATEGORIES


def printable(text: str, width: int) -> str:
  """Returns text for a terminal: truncated, with invisible characters escaped."""
  visible = ''.join(map(_visible, text[:width]))
  return f'{visible}…' if len(text) > width else visible


def _visible(character: str) -> str:
  return character if character.isprintable() else f'\\u{ord(character):04x}'
