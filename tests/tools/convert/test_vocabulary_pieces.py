"""More pieces change no cut of a text, and a vocabulary tells whether it works by merges alone."""

import pytest

from tests.tools.convert.test_adoption import HOSTILE, KINDS, TEXT, train
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.tools.convert.adoption import adopt
from transformer.tools.convert.vocabulary_pieces import extend, has_merges_alone


@pytest.mark.parametrize('kind', KINDS)
def test_more_pieces_follow_and_change_no_cut(kind, tmp_path):
  vocabulary = adopt(train(tmp_path / 'own.model', KINDS[kind]))
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


def test_only_plain_pieces_of_a_bpe_model_work_by_merges_alone(tmp_path):
  assert has_merges_alone(Vocabulary.train(TEXT, 330))
  assert not has_merges_alone(extend(Vocabulary.train(TEXT, 330), ['▁>>fra<<']))
  assert not has_merges_alone(
    Vocabulary.train(TEXT, 330, config=DataConfig(normalisation='nfkc'))
  )
  for kind in ('unigram', 'characters', 'symbols'):
    assert not has_merges_alone(adopt(train(tmp_path / 'own.model', KINDS[kind])))
