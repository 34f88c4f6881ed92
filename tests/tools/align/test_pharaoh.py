"""Gold alignments are read as they were drawn, or the line that is wrong is named."""

import pytest

from transformer.errors import UserError
from transformer.tools.align.pharaoh import GoldLinks, alignment_lines, read_gold

SOURCES, TARGETS = ['a b c', '', 'a\u00a0b c'], ['x y', 'z', 'x']


def read(tmp_path, text):
  path = tmp_path / 'gold'
  path.write_text(text, encoding='utf-8')
  return read_gold(path, SOURCES, TARGETS)


def test_sure_links_are_possible_too(tmp_path):
  found = read(tmp_path, '0-0  2?1 1p0\t2-1\n\n1-0 1p0\n')
  assert found == [GoldLinks(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1), (1, 0)})),
                   GoldLinks(frozenset(), frozenset()),
                   GoldLinks(frozenset({(1, 0)}), frozenset({(1, 0)}))]


def test_what_is_written_is_read(tmp_path):
  links = [[(0, 1), (2, 0)], [], [(1, 0)]]
  assert alignment_lines(links) == ['0-1 2-0', '', '1-0']
  found = read(tmp_path, ''.join(f'{line}\n' for line in alignment_lines(links)))
  assert [sorted(each.sure) for each in found] == links


@pytest.mark.parametrize('text', ['1', '1-', '-1', '1-2-3', '1_1', 'a-b', '1:1', '0-0,', '-1-0',
                                  '²-0', '٠-0', '0-0000000000', '+0-0', '0P0'])
def test_a_link_that_is_none_is_named_with_its_line(tmp_path, text):
  with pytest.raises(UserError, match=r'gold:3: a link must be I-J if .* got ') as caught:
    read(tmp_path, f'0-0\n\n{text}\n')
  assert str(caught.value).endswith(repr(text)) and '\n' not in str(caught.value)


@pytest.mark.parametrize(('lines', 'fact'), [
    ('3-0\n\n\n', 'gold:1: the link 3-0 must join one of the 3 words of the source'),
    ('0?2\n\n\n', 'gold:1: the link 0.2 must'), ('\n0-0\n\n', 'gold:2: the link 0-0 must .* the 0'),
    ('\n\n2-0\n', 'gold:3: the link 2-0 must join one of the 2 .* count words from 0'),
    ('0-0\n', 'there are 3 pairs, .*gold has 1 lines')])
def test_gold_of_other_sentences_is_refused(tmp_path, lines, fact):
  with pytest.raises(UserError, match=fact):
    read(tmp_path, lines)
