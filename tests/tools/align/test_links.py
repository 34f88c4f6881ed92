"""Gold links are read or the wrong line named; tokens belong to words in any text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.vocabulary.test_vocabulary import ESCAPE, LINE, vocabulary  # noqa: F401
from transformer.errors import UserError
from transformer.tools.align.links import GoldLinks, piece_bytes, read_gold, word_parts

SPACE = b' \t\n\v\f\r'
SOURCES, TARGETS = ['a b c', '', 'a\u00a0b c'], ['x y', 'z', 'x']


def read(tmp_path, text):
  path = tmp_path / 'gold'
  path.write_text(text, encoding='utf-8')
  return read_gold(path, SOURCES, TARGETS)


def test_sure_links_are_possible_too(tmp_path):
  found = read(tmp_path, '0-0  2?1 1p0\t2-1\n\n1-0 1p0\n')
  assert found == [
    GoldLinks(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1), (1, 0)})),
    GoldLinks(frozenset(), frozenset()),
    GoldLinks(frozenset({(1, 0)}), frozenset({(1, 0)})),
  ]


@pytest.mark.parametrize(
  ('lines', 'fact'),
  [
    *(
      (f'\n\n{link}\n', f'gold:3: .*; got {link!r}'.replace('?', '.').replace('+', '.'))
      for link in (
        '1',
        '1-',
        '-1',
        '1-2-3',
        'a-b',
        '0-0,',
        '²-0',
        '٠-0',
        '0-0000000000',
        '+0-0',
        '2-0',
      )
    ),
    ('3-0\n\n\n', 'gold:1: a link must be I-J .* one of the 3 words I of the source'),
    ('0?2\n\n\n', 'gold:1: .* the 2 words J of the target'),
    ('\n0-0\n\n', 'gold:2: .* the 0 words'),
    ('0-0\n', 'there are 3, and .*gold has 1 lines'),
  ],
)
def test_a_link_that_is_none_is_named_with_its_line(tmp_path, lines, fact):
  with pytest.raises(UserError, match=fact) as caught:
    read(tmp_path, lines)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  ('pieces', 'wanted'),
  [
    ([b' the', b' c', b'at'], [[1, 0], [0, 1], [0, 1]]),
    ([b'the', b' ', b' ', b' cat', b' '], [[1, 0], [0, 0], [0, 0], [0, 1], [0, 0]]),
    ([b'a\tb', b'c'], [[1, 1], [0, 1]]),  # A token of two words.
    ([b'a', b'\t', b'b'], [[1, 0], [0, 0], [0, 1]]),
    (
      [b'\xc3', b'\xa9', b' \xf0\x9f', b'\x98', b'\x80'],
      [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]],
    ),
    (
      ['a\u00a0b'.encode(), 'e\u0301 \u3000'.encode()],
      [[1, 0], [1, 1]],
    ),  # No ASCII white space.
    ([b' '], np.zeros((1, 0))),
    ([], np.zeros((0, 0))),
  ],
)
def test_tokens_belong_to_words_by_the_ranges_of_their_bytes(pieces, wanted):
  np.testing.assert_array_equal(word_parts(pieces), np.array(wanted, bool))


@given(line=st.one_of(LINE, st.text('aé \t\u2581\u0301👩 z', max_size=40)))
@settings(max_examples=150, deadline=None)
def test_words_of_any_line_are_covered_by_their_tokens(vocabulary, line):  # noqa: F811
  pieces = [piece_bytes(vocabulary, token) for token in vocabulary.encode(line)]
  parts = word_parts(pieces)
  words = line.encode().split()
  assert parts.shape == (len(pieces), len(words))
  # A token that is not all white space has words, and those of a token are neighbours.
  for piece, row in zip(pieces, parts, strict=True):
    places = np.flatnonzero(row)
    assert bool(piece.strip(SPACE)) == bool(places.size)
    assert np.all(np.diff(places) == 1)
  # The tokens of a word hold its bytes, in order and without a gap.
  for word, column in zip(words, parts.T, strict=True):
    places = np.flatnonzero(column)
    assert places.size and np.all(np.diff(places) == 1)
    text = b''.join(pieces[place] for place in places)
    for escaped, plain in (
      (f'{ESCAPE}1', '\u2581'),
      (f'{ESCAPE}2', '\u2585'),
      (f'{ESCAPE}0', ESCAPE),
    ):
      text = text.replace(escaped.encode(), plain.encode())
    assert word in text
