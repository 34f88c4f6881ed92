"""A vocabulary that grows keeps its pieces, and cuts text by all of them."""

import itertools

import numpy as np
import pytest

from transformer.data.batches.bpe_dropout import Merges, check_merges
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.making import grow, spell
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError

OLD = ['a man in a red shirt climbs a tall rock face .',
       'two women are sitting on the bench and talking .'] * 3
NEW = ['the patient takes forty milligrams of prednisolone daily .',
       'ежедневно пациент принимает сорок миллиграммов преднизолона .'] * 3
SIZE, LARGER = 320, 410


@pytest.fixture(scope='module')
def old():
  return Vocabulary.train(OLD, SIZE)


@pytest.fixture(scope='module')
def learned():
  return Vocabulary.train(NEW, LARGER, full=False)


@pytest.fixture(scope='module')
def grown(old, learned):
  return grow(old, learned, LARGER, 'vocabulary')


def pieces(vocabulary):
  return [vocabulary.piece(token) for token in range(vocabulary.size)]


def test_old_pieces_keep_their_ids_and_new_ones_follow_once(old, grown, learned):
  assert grown.size == LARGER
  assert pieces(grown)[:SIZE] == pieces(old)
  added = pieces(grown)[SIZE:]
  assert len(set(pieces(grown))) == LARGER and set(added) <= set(pieces(learned))
  # First the characters, and then pieces in the order in which they were learned.
  merges = [piece for piece in added if len(piece) > 1]
  assert added[-len(merges):] == merges and len(merges) > 20
  order = [piece for piece in pieces(learned) if len(piece) > 1 and piece not in pieces(old)]
  assert merges == order[:len(merges)]


def test_any_text_comes_back_and_new_text_takes_fewer_pieces(old, grown):
  for line in [*OLD, *NEW, '', '  ▁ \x00 ﬁ', 'пад\u2585']:
    assert grown.decode(grown.encode(line)) == line
  for line in NEW:
    assert len(grown.encode(line)) < 0.7 * len(old.encode(line))
  assert any(token in BYTE_IDS for token in old.encode(NEW[1]))
  assert not any(token in BYTE_IDS for token in grown.encode(NEW[1]))


def test_it_cuts_as_merges_do(grown):
  check_merges(grown, OLD + NEW)
  encoded = Sentences.ended(grown.encode_batch(NEW))
  dropped = Merges(grown).cut(encoded, np.arange(len(NEW), dtype=np.uint64), 0.5)
  assert [grown.decode(dropped[number]) for number in range(len(NEW))] == NEW


def test_each_piece_is_spelt_by_what_it_says(old, grown):
  def text(vocabulary, ids):
    return b''.join(bytes([token - BYTE_IDS.start]) if token in BYTE_IDS
                    else vocabulary.piece(token).encode() for token in ids)

  spelt = spell(grown, old)
  assert spelt[:SIZE] == [[token] for token in range(SIZE)]
  for token in range(SIZE, LARGER):
    assert text(old, spelt[token]) == text(grown, [token])
  assert max(itertools.chain.from_iterable(spelt)) < SIZE
  # The other way round, pieces are found by name wherever they are.
  back = spell(old, grown)
  assert all(old.piece(token) == grown.piece(*back[token]) for token in range(SIZE))


def test_text_that_cannot_fill_the_size_says_the_largest(old, learned):
  with pytest.raises(UserError, match=r'data\.vocabulary_size=900 is more .*to at most \d+$'
                     ) as caught:
    grow(old, learned, 900, 'vocabulary')
  most = int(str(caught.value).split()[-1])
  assert grow(old, learned, most, 'vocabulary').size == most
