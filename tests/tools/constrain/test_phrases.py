"""Phrases are read as a plain look at all tokens finds them."""

import itertools

import jax
import numpy as np
import pytest

from tests.ops.toy_language import contains
from transformer.ops.search import PAD
from transformer.tools.constrain.phrases import build_matcher

N, LENGTH = 7, 19
CONTINUES = np.arange(N) == 4
# Phrases that overlap with themselves, with each other and with longer words, or in one.
PHRASES = [
  ((3, 3, 5), (3, 5)),
  ((3,), ()),
  ((3,), (3, 4)),
  ((5, 3), (3, 5)),
  ((3, 4, 3), (4,)),
  ((3, 3), (3, 5)),
  ((3, 5, 3, 4), (5, 3, 4, 5)),
  ((), (5,)),
  ((), ()),
]


def padded(phrases, length=4):
  return np.asarray(
    [
      [(*phrase, *[PAD] * (length - len(phrase))) for phrase in item]
      for item in phrases
    ],
    np.int32,
  )


@pytest.fixture(scope='module')
def readings():
  """Returns tokens [C, T], the same for every input, and the phrases found after each of them."""
  rng = np.random.default_rng(0)
  # Pad, begin and end may be emitted too, but tokens of the phrases are more frequent.
  tokens_CT = rng.choice(
    N, p=[0.02, 0.02, 0.01, 0.45, 0.15, 0.3, 0.05], size=(199, LENGTH)
  )

  @jax.jit
  def read(tokens_TBC):
    matcher = build_matcher(padded(PHRASES), CONTINUES)

    def advance(progress, token_BC):
      progress = matcher.after(progress, token_BC)
      return progress, (
        matcher.is_complete(progress),
        matcher.is_pending(progress),
        matcher.bank(progress),
        matcher.wanted(progress),
      )

    return jax.lax.scan(advance, matcher.start(len(tokens_CT)), tokens_TBC)[1]

  tokens_TBC = np.broadcast_to(
    tokens_CT.T[:, None], (LENGTH, len(PHRASES), len(tokens_CT))
  )
  return tokens_CT.tolist(), jax.device_get(read(tokens_TBC.astype(np.int32)))


def places(readings):
  """Yields the phrases, the tokens so far, and the index of what was found after them."""
  for b, c, t in itertools.product(
    range(len(PHRASES)), range(len(readings[0])), range(LENGTH)
  ):
    yield PHRASES[b], readings[0][c][: t + 1], (t, b, c)


def test_phrases_are_complete_where_the_tokens_contain_them_as_whole_words(readings):
  complete, pending = readings[1][:2]
  seen = set()
  for phrases, tokens, place in places(readings):
    whole = contains(tokens, phrases, CONTINUES)
    assert complete[place] == whole, (phrases, tokens)
    # A match at this position is lost if the word continues.
    if whole and not contains([*tokens, 4], phrases[:1], CONTINUES):
      assert pending[place]
    seen.add((phrases, whole))
  assert len(seen) == 2 * len(PHRASES) - 1  # Nothing is always complete.


def test_tokens_that_are_wanted_complete_the_phrases_and_the_bank_is_full_only_then(
  readings,
):
  complete, _, bank, wanted = readings[1]
  for phrases, tokens, place in places(readings):
    most = sum(map(len, phrases))
    assert 0 <= bank[place] <= most and (bank[place] == most) == complete[place], (
      phrases,
      tokens,
    )
    for phrase, token in zip(phrases, wanted[place], strict=True):
      assert token == -1 or token in phrase
    assert (wanted[place] == -1).all() == complete[place]
