"""Letters are counted by script, and characters that no text should have are found."""

import pytest

from transformer.tools.audit.characters import (
  count_scripts,
  has_odd_characters,
  printable,
)


@pytest.mark.parametrize(
  ('text', 'letters'),
  [
    ('Grüße, 3 × é!', {'LATIN': 6}),
    ('Привет мир', {'CYRILLIC': 9}),
    ('Ωμέγα', {'GREEK': 5}),
    ('日本語のテキストー', {'KATAKANA': 5, 'CJK': 3, 'HIRAGANA': 1}),
    ('한국어', {'HANGUL': 3}),
    ('שלום', {'HEBREW': 4}),
    ('ｆｕｌｌ 𝐛𝐨𝐥𝐝 ª', {'LATIN': 9}),
    ('ﾃｷｽﾄ', {'KATAKANA': 4}),
    ('ab мир', {'LATIN': 2, 'CYRILLIC': 3}),
    ('ʼ ˇ 👩‍👩‍👧 123 …', {}),
    ('', {}),
  ],
)
def test_letters_are_counted_by_script(text, letters):
  assert count_scripts(text) == letters


@pytest.mark.parametrize(
  ('text', 'odd'),
  [
    ('ab мир', False),
    ('a b, é 😀', False),
    ('', False),
    ('a\tb', True),
    ('a\x00b', True),
    ('a\u2028b', True),
    ('\u200fש', True),
    ('a\u00adb', True),
    ('a\ufeff', True),
    ('caf\ufffd', True),
    ('\ue000', True),
    ('\ud800', True),
  ],
)
def test_control_invisible_private_and_broken_characters_are_odd(text, odd):
  assert has_odd_characters(text) == odd


def test_invisible_characters_are_shown_by_their_code():
  assert printable('a\x00\u202eb é 😀', 99) == 'a\\u0000\\u202eb é 😀'
  assert printable('abcdef', 6) == 'abcdef' and printable('abcdefg', 6) == 'abcdef…'
