"""More pieces change no segmentation of a text."""

import pytest

from tests.tools.convert.test_sentencepiece_import import HOSTILE, KINDS, TEXT, train
from transformer.data.vocabulary.vocabulary import BYTE_IDS
from transformer.tools.convert.sentencepiece_import import import_sentencepiece
from transformer.tools.convert.vocabulary_pieces import extend


@pytest.mark.parametrize('kind', KINDS)
def test_added_pieces_do_not_change_the_segmentation(kind, tmp_path):
  vocabulary = import_sentencepiece(train(tmp_path / 'own.model', KINDS[kind]))
  known = vocabulary.piece(BYTE_IDS.stop)
  more = extend(vocabulary, ['▁>>fra<<'], [known, 'Ж', 'red▁shirt', '▁zweifellos'])
  before = [vocabulary.piece(token) for token in range(vocabulary.size)]
  after = [more.piece(token) for token in range(more.size)]
  assert after == [*before, '▁>>fra<<', 'Ж', 'red▁shirt', '▁zweifellos']
  for line in [*TEXT, *HOSTILE, 'zweifellos a red shirt']:
    assert more.encode(line) == vocabulary.encode(line)
  ids = more.encode('>>fra<< Ж')
  assert [more.piece(token) for token in ids] == ['▁>>fra<<', '▁', 'Ж']
  assert more.decode(ids) == '>>fra<< Ж'
  assert more.decode([after.index('▁zweifellos')]) == 'zweifellos'
  assert extend(more, ['▁>>fra<<'], [known]) is more
