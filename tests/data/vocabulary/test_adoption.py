"""SentencePiece models from elsewhere keep their pieces, and give every text back as it was."""

import io
import logging

import pytest
import sentencepiece

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.adoption import adopt, report_adoption
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError

TEXT = ['a man in a red shirt climbs a tall rock face .',
        'two women are sitting on the bench and talking .',
        'ein mann klettert einen hohen felsen hinauf .'] * 4
HOSTILE = ['', '  two  spaces ', ' ﬁ Ａ ½ \u2028', '▁ \x00 \u2585', 'ежедневно', '</s> <pad> <unk>',
           '<0x41> <zz>', '\U000f25810']
# What spm_train does by default, and what other toolkits make of it.
KINDS = {
    'unigram': {'model_type': 'unigram', 'vocab_size': 60, 'hard_vocab_limit': False},
    'folded': {'model_type': 'bpe', 'vocab_size': 90, 'normalization_rule_name': 'nmt_nfkc_cf'},
    'symbols': {'model_type': 'bpe', 'vocab_size': 90, 'user_defined_symbols': ['<zz>'],
                'control_symbols': ['<en>', '<de>']},
    'bytes behind symbols': {'model_type': 'bpe', 'vocab_size': 350, 'byte_fallback': True,
                             'control_symbols': ['<en>'], 'pad_id': 0, 'bos_id': 1, 'eos_id': 2,
                             'unk_id': 3, 'normalization_rule_name': 'identity',
                             'remove_extra_whitespaces': False},
    'other ids': {'model_type': 'bpe', 'vocab_size': 90, 'unk_id': 5, 'eos_id': 0, 'bos_id': -1,
                  'pad_id': 1, 'pad_piece': '<void>', 'unk_piece': '<what>'},
    'characters': {'model_type': 'char', 'vocab_size': 40, 'hard_vocab_limit': False},
}


def train(path, options):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model,
                                           minloglevel=2, **options)
  path.write_bytes(model.getvalue())
  return path


@pytest.fixture(scope='module', params=KINDS)
def adopted(request, tmp_path_factory):
  return adopt(train(tmp_path_factory.mktemp('models') / 'own.model', KINDS[request.param]))


def test_text_is_cut_into_the_same_pieces(adopted):
  assert adopted.original is not None
  for line in TEXT:
    pieces = [adopted.vocabulary.piece(token) for token in adopted.vocabulary.encode(line)]
    assert pieces == adopted.original.encode(line, out_type=str)


def test_every_text_comes_back_as_it_was(adopted):
  for line in [*TEXT, *HOSTILE]:
    ids = adopted.vocabulary.encode(line)
    assert adopted.vocabulary.decode(ids) == line
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)


def test_control_symbols_and_bytes_come_first_and_no_piece_is_lost(adopted):
  vocabulary = adopted.vocabulary
  pieces = [vocabulary.piece(token) for token in range(vocabulary.size)]
  assert pieces[BYTE_IDS.start:BYTE_IDS.stop] == [f'<0x{byte:02X}>' for byte in range(256)]
  before = [adopted.original.id_to_piece(token)
            for token in range(adopted.original.get_piece_size())]
  assert set(before) <= set(pieces) and len(pieces) == len(set(pieces))
  # The others keep their order.
  others = pieces[BYTE_IDS.stop:]
  assert others == [piece for piece in before if piece in set(others)]


def test_what_was_adopted_is_adopted_as_it_is(adopted, tmp_path):
  adopted.vocabulary.save(tmp_path / 'again.model')
  again = adopt(tmp_path / 'again.model')
  assert again.original is None
  assert again.vocabulary.model_bytes == adopted.vocabulary.model_bytes


def test_a_vocabulary_of_this_project_keeps_every_bit(tmp_path):
  for vocabulary in (Vocabulary.train(TEXT, 330), Vocabulary.train(TEXT, 2000, full=False)):
    vocabulary.save(tmp_path / 'own.model')
    found = adopt(tmp_path / 'own.model')
    assert found.original is None and found.vocabulary.model_bytes == vocabulary.model_bytes


@pytest.mark.parametrize(('kind', 'line', 'changed'), [
    ('folded', 'A Man', True), ('folded', 'a man', False), ('unigram', 'a  man', True)])
def test_a_model_that_would_change_the_text_is_warned_of(tmp_path, caplog, kind, line, changed):
  found = adopt(train(tmp_path / 'own.model', KINDS[kind]))
  with caplog.at_level(logging.INFO, logger='absl'):
    report_adoption(found, [TEXT[0], line], 'vocabulary')
  warnings = [each.getMessage() for each in caplog.records if each.levelname == 'WARNING']
  assert len(warnings) == changed
  if changed:
    assert f'data.vocabulary would change 1 of 2 lines of training text, such as {line!r} to ' \
        f"'a man'" in warnings[0]
  assert any('is a model from elsewhere' in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize(('content', 'message'), [
    (b'', 'should hold a SentencePiece model, but does not \\(0 bytes\\)'),
    (b'\x0a\x7fno model', 'should hold a SentencePiece model')])
def test_a_file_that_is_no_model_is_named(tmp_path, content, message):
  (tmp_path / 'own.model').write_bytes(content)
  with pytest.raises(UserError, match=f'own.model {message}'):
    adopt(tmp_path / 'own.model')
  with pytest.raises(UserError, match='gone cannot be read: No such file'):
    adopt(tmp_path / 'gone')


def test_a_model_of_whole_words_is_refused(tmp_path):
  path = train(tmp_path / 'own.model', {'model_type': 'word', 'vocab_size': 20})
  with pytest.raises(UserError, match='has model_type=word; train it with --model_type=bpe'):
    adopt(path)


def test_a_user_without_a_home_is_named():
  with pytest.raises(UserError, match=r'~nobody_of_this_name/own\.model cannot be read'):
    adopt('~nobody_of_this_name/own.model')


def test_a_model_that_marks_spaces_after_words_is_refused(tmp_path):
  path = train(tmp_path / 'own.model', KINDS['unigram'] | {'treat_whitespace_as_suffix': True})
  with pytest.raises(UserError, match='train it without --treat_whitespace_as_suffix'):
    adopt(path)
