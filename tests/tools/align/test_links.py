"""Tokens belong to words in any text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.vocabulary.test_vocabulary import ESCAPE, LINE, vocabulary  # noqa: F401
from transformer.tools.align.links import piece_bytes, token_word_overlap

SPACE = b' \t\n\v\f\r'


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
  np.testing.assert_array_equal(token_word_overlap(pieces), np.array(wanted, bool))


@given(line=st.one_of(LINE, st.text('aé \t\u2581\u0301👩 z', max_size=40)))
@settings(max_examples=150, deadline=None)
def test_words_of_any_line_are_covered_by_their_tokens(vocabulary, line):  # noqa: F811
  pieces = [piece_bytes(vocabulary, token) for token in vocabulary.encode(line)]
  parts = token_word_overlap(pieces)
  words = line.encode().split()
  assert parts.shape == (len(pieces), len(words))
  # A token that is not all white space has words, and the words of a token are neighbors.
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
