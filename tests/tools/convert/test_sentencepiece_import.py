"""SentencePiece models from elsewhere keep their pieces, and restore every text."""

import io
import logging

import pytest
import sentencepiece

from tests.data.vocabulary.test_kinds import HOSTILE
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError
from transformer.tools.convert.sentencepiece_import import import_sentencepiece

TEXT = [
  'a man in a red shirt climbs a tall rock face .',
  'two women are sitting on the bench and talking .',
  'ein mann klettert einen hohen felsen hinauf .',
] * 4
# What spm_train does by default, and what other toolkits make of it.
KINDS = {
  'unigram': {'model_type': 'unigram', 'vocab_size': 60, 'hard_vocab_limit': False},
  'folded': {
    'model_type': 'bpe',
    'vocab_size': 90,
    'normalization_rule_name': 'nmt_nfkc_cf',
  },
  'symbols': {
    'model_type': 'bpe',
    'vocab_size': 90,
    'user_defined_symbols': ['<zz>'],
    'control_symbols': ['<en>', '<de>'],
  },
  'bytes behind symbols': {
    'model_type': 'bpe',
    'vocab_size': 350,
    'byte_fallback': True,
    'control_symbols': ['<en>'],
    'pad_id': 0,
    'bos_id': 1,
    'eos_id': 2,
    'unk_id': 3,
    'normalization_rule_name': 'identity',
    'remove_extra_whitespaces': False,
  },
  'other ids': {
    'model_type': 'bpe',
    'vocab_size': 90,
    'unk_id': 5,
    'eos_id': 0,
    'bos_id': -1,
    'pad_id': 1,
    'pad_piece': '<void>',
    'unk_piece': '<what>',
  },
  'characters': {'model_type': 'char', 'vocab_size': 40, 'hard_vocab_limit': False},
}


def train(path, options):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXT), model_writer=model, minloglevel=2, **options
  )
  path.write_bytes(model.getvalue())
  return path


@pytest.fixture(scope='module', params=KINDS)
def path(request, tmp_path_factory):
  return train(tmp_path_factory.mktemp('models') / 'own.model', KINDS[request.param])


@pytest.fixture(scope='module')
def command(start_command):
  yield from start_command('transformer.tools.convert.__main__')


def pieces_of(model):
  return [model.id_to_piece(token) for token in range(model.get_piece_size())]


def test_pieces_segmentation_and_text_are_preserved(path, caplog):
  original = sentencepiece.SentencePieceProcessor(str(path))
  with caplog.at_level(logging.INFO, logger='absl'):
    vocabulary = import_sentencepiece(path)
  assert 'own.model is from another project' in caplog.text
  for line in TEXT:
    assert [
      vocabulary.piece(token) for token in vocabulary.encode(line)
    ] == original.encode(line, out_type=str)
  for line in [*TEXT, *HOSTILE]:
    ids = vocabulary.encode(line)
    assert vocabulary.decode(ids) == line
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)
  # Control symbols and bytes come first, no piece is lost, and the others keep their order.
  pieces = [vocabulary.piece(token) for token in range(vocabulary.size)]
  assert pieces[BYTE_IDS.start : BYTE_IDS.stop] == [
    f'<0x{byte:02X}>' for byte in range(256)
  ]
  before, others = pieces_of(original), pieces[BYTE_IDS.stop :]
  assert set(before) <= set(pieces) and len(pieces) == len(set(pieces))
  assert others == [piece for piece in before if piece in set(others)]


def test_a_vocabulary_of_this_project_is_imported_unchanged(path, tmp_path):
  for vocabulary in (import_sentencepiece(path), Vocabulary.train(TEXT, 330)):
    vocabulary.save(tmp_path / 'own.model')
    assert (
      import_sentencepiece(tmp_path / 'own.model').model_bytes == vocabulary.model_bytes
    )


def test_a_model_that_normalizes_as_the_vocabulary_should_stays_as_it_is(tmp_path):
  folded = DataConfig(normalization='nmt_nfkc_cf')
  vocabulary = Vocabulary.train(TEXT, 330, config=folded)
  vocabulary.save(tmp_path / 'own.model')
  assert (
    import_sentencepiece(tmp_path / 'own.model', 'nmt_nfkc_cf').model_bytes
    == vocabulary.model_bytes
  )
  plain = import_sentencepiece(tmp_path / 'own.model')
  assert (plain.normalization, plain.round_trip('ﬁ A')) == ('identity', 'ﬁ A')


@pytest.mark.parametrize('flags', [(), ('--normalization=nmt_nfkc_cf',)], ids=str)
def test_the_command_writes_what_a_run_takes(command, path, tmp_path, flags):
  output = tmp_path / 'new.model'
  status, out, err = command(
    '--format=vocabulary', f'--weights={path}', f'--output={output}', *flags
  )
  assert status == 0, err
  vocabulary = Vocabulary.load(output)
  assert vocabulary.normalization == (
    flags[0].partition('=')[2] if flags else 'identity'
  )
  assert f'--config.data.vocabulary_size={vocabulary.size}' in out


def test_a_file_that_is_not_a_sentencepiece_model_is_rejected(tmp_path):
  path = tmp_path / 'own.model'
  for content in (b'', b'\x0a\x7fno model'):
    path.write_bytes(content)
    with pytest.raises(
      UserError, match=r'own\.model should hold a SentencePiece model'
    ):
      import_sentencepiece(path)
  for options in (
    {'model_type': 'word', 'vocab_size': 20},
    KINDS['unigram'] | {'treat_whitespace_as_suffix': True},
  ):
    with pytest.raises(
      UserError, match=r'model_type=bpe, .* --treat_whitespace_as_suffix'
    ):
      import_sentencepiece(train(path, options))
  for missing in (tmp_path / 'gone', '~nobody_of_this_name/own.model'):
    with pytest.raises(UserError, match=f'{missing} cannot be read: No such file'):
      import_sentencepiece(missing)
