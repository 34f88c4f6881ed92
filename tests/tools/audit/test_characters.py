"""Letters are counted by script, and characters that no text should have are counted too."""

import pytest

from transformer.tools.audit.characters import (
  FIRST_SCRIPT,
  ODD,
  count_kinds,
  odd_codes,
  script_table,
  shown,
)


def by_script(kinds):
  return {
    name: number
    for name, number in zip(
      script_table()[0], kinds[FIRST_SCRIPT:].tolist(), strict=True
    )
    if number
  }


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
    ('ʼ ˇ 👩‍👩‍👧 123 …', {}),
    ('', {}),
  ],
)
def test_letters_are_counted_by_script(text, letters):
  assert by_script(count_kinds([text])[0]) == letters


def test_counts_are_of_each_line():
  lines = [
    'ab мир',
    '',
    'a\x00\t\u2028',
    '\u200fש\u00adb\ufeff',
    '\ufffd\ue000\ud800 мир',
  ]
  kinds = count_kinds(lines)
  assert kinds[:, ODD].tolist() == [0, 0, 3, 3, 3]
  assert list(map(by_script, kinds)) == [
    {'LATIN': 2, 'CYRILLIC': 3},
    {},
    {'LATIN': 1},
    {'LATIN': 1, 'HEBREW': 1},
    {'CYRILLIC': 3},
  ]
  assert kinds.sum(1).tolist() == list(map(len, lines))


def test_what_cannot_be_seen_is_shown_by_its_code():
  assert shown('a\x00\u202eb é 😀', 99) == 'a\\u0000\\u202eb é 😀'
  assert shown('abcdef', 6) == 'abcdef' and shown('abcdefg', 6) == 'abcdef…'
  assert odd_codes('a\x00\x00 \ufffd\u00a0é') == 'U+0000 U+FFFD'
  assert (
    odd_codes(''.join(map(chr, range(9)))) == 'U+0000 U+0001 U+0002 U+0003 U+0004 …'
  )
