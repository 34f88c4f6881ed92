"""Letters are counted by script, and unnecessary characters by kind."""

import pytest

from transformer.data.audit.characters import count, odd, scripts_of, shown


@pytest.mark.parametrize(('text', 'scripts'), [
    ('Grüße, 3 × é!', {'LATIN': 6}), ('Привет мир', {'CYRILLIC': 9}), ('Ωμέγα', {'GREEK': 5}),
    ('日本語のテキストー', {'KATAKANA': 5, 'CJK': 3, 'HIRAGANA': 1}), ('한국어', {'HANGUL': 3}),
    ('שלום', {'HEBREW': 4}), ('ｆｕｌｌ 𝐛𝐨𝐥𝐝 ª', {'LATIN': 9}), ('ﾃｷｽﾄ', {'KATAKANA': 4}),
    ('ʼ ˇ 👩‍👩‍👧 123 …', {}), ('', {}),
])
def test_letters_are_counted_by_script(text, scripts):
  found = count([text], frozenset())
  assert found.scripts == scripts and list(found.scripts) == list(scripts)
  assert found.letters.tolist() == [sum(scripts.values())]


def test_counts_are_of_each_line():
  found = count(['ab мир', '', 'a\x00\t\u2028', '\u200fש\u00adb\ufeff', '\ufffd\ue000 мир'],
                frozenset({'LATIN'}))
  assert found.letters.tolist() == [5, 0, 1, 2, 3]
  assert found.unexpected.tolist() == [3, 0, 0, 1, 3]
  assert found.control.tolist() == [0, 0, 3, 0, 0]
  assert found.invisible.tolist() == [0, 0, 0, 3, 0]
  assert found.broken.tolist() == [0, 0, 0, 0, 2]


def test_a_language_says_which_scripts_to_expect():
  assert scripts_of('de') == scripts_of('pt_BR') == scripts_of('EN-us') == {'LATIN'}
  assert scripts_of('sr') == {'LATIN', 'CYRILLIC'} and scripts_of('uk') == {'CYRILLIC'}
  assert scripts_of('ja') == scripts_of('jp') == {'CJK', 'HIRAGANA', 'KATAKANA'}
  assert scripts_of('zho_Hans') == scripts_of('cn') == {'CJK'}
  assert scripts_of('xx') == frozenset()
  # The script of most letters is expected then.
  assert count(['мир', 'мир', 'abc'], frozenset()).unexpected.tolist() == [0, 0, 3]


def test_what_cannot_be_seen_is_shown_by_its_code():
  assert shown('a\x00\u202eb é 😀', 99) == 'a\\u0000\\u202eb é 😀'
  assert shown('abcdef', 6) == 'abcdef' and shown('abcdefg', 6) == 'abcdef…'
  assert odd('a\x00\x00 \ufffd\u00a0é') == 'U+0000 U+FFFD'
  assert odd(''.join(map(chr, range(9)))) == 'U+0000 U+0001 U+0002 U+0003 U+0004 …'
