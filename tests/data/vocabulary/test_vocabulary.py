"""A vocabulary returns every line of text unchanged."""

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.vocabulary.vocabulary import (
  BOS_ID,
  EOS_ID,
  PAD_ID,
  UNK_ID,
  Vocabulary,
)
from transformer.errors import UserError

ESCAPE = '\U000f2581'
SENTENCES = [
  'a man in a red shirt climbs a tall rock face .',
  'ein mann in einem roten hemd klettert auf einen felsen .',
  'two women are sitting on the bench and talking .',
  'zwei frauen sitzen auf der bank und unterhalten sich .',
  'the dog runs through the wet grass  with a stick\tin its mouth',
  'der hund läuft mit einem stock im maul durch das nasse gras',
] * 3
SIZE = 320
LINE = st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\n'))


@pytest.fixture(scope='module')
def vocabulary() -> Vocabulary:
  return Vocabulary.train(SENTENCES, SIZE)


@pytest.mark.parametrize(
  'line',
  [
    '',
    ' ',
    '   ',
    ' a',
    'a ',
    '  a   red  shirt  ',
    '\t',
    'a\tb',
    '\x00',
    'a\x00man',
    '\u2581',
    '\u2581\u2581 \u2581a\u2581',
    '\u2585 dog',
    ESCAPE,
    f'{ESCAPE}1',
    f'{ESCAPE}{ESCAPE}0',
    f'\u2581{ESCAPE}\u2581',
    'a\u2028b',
    'a\u0085b',
    'a\rb\r',
    '\va\f',
    'e\u0301 é',
    'ﬁ ½ Å',
    '👩‍👩‍👧 🇩🇪',
    '<s>',
    '</s> a',
    '<unk>',
    '<pad>',
    '<0x41>',
    ' ⁇ ',
    '\u200fשלום\u200e',
    '\ufeffa',
    '\u00a0\u3000a',
    'x' * 20_000,
    'a man ' * 3_000,
  ],
)
def test_a_line_round_trips_exactly(vocabulary, line):
  ids = vocabulary.encode(line)
  assert vocabulary.decode(ids) == line
  assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)


@given(line=LINE)
@settings(max_examples=50, deadline=None)
def test_any_line_round_trips_exactly(vocabulary, line):
  assert vocabulary.decode(vocabulary.encode(line)) == line


def test_pieces_are_control_symbols_bytes_and_frequent_words(vocabulary):
  assert [vocabulary.piece(token) for token in range(5)] == [
    '<pad>',
    '<s>',
    '</s>',
    '<unk>',
    '<0x00>',
  ]
  assert vocabulary.size == SIZE
  pieces = [vocabulary.piece(token) for token in vocabulary.encode('ein mann')]
  assert len(pieces) < len('ein mann') and ''.join(pieces) == '▁ein▁mann'
  rare = Vocabulary.train([*SENTENCES * 400, 'ж'], SIZE)  # Spelled in bytes.
  assert [rare.piece(token) for token in rare.encode('ж')][-2:] == ['<0xD0>', '<0xB6>']


def test_decode_stops_at_the_end_and_leaves_out_padding(vocabulary):
  dog = vocabulary.encode('the dog')
  ids = [PAD_ID, BOS_ID, *dog, PAD_ID, EOS_ID, *dog, PAD_ID]
  assert vocabulary.decode(ids) == 'the dog'
  assert vocabulary.decode(np.array(ids, np.int32)) == 'the dog'
  assert vocabulary.decode([]) == ''


def test_decode_returns_one_line_of_valid_text_for_any_tokens(vocabulary):
  for token in range(vocabulary.size):
    text = vocabulary.decode([token])
    assert '\n' not in text
    text.encode('utf-8')
  assert vocabulary.decode([4 + ord('a'), 4 + ord('\n'), 4 + ord('b')]) == 'a b'
  assert vocabulary.decode([4 + 0xFF]) == '\ufffd'
  assert vocabulary.decode([UNK_ID]) == ' ⁇ '
  with pytest.raises(IndexError):
    vocabulary.decode([vocabulary.size])


def test_encode_batch_equals_encode(vocabulary):
  lines = [*SENTENCES, '', ' \u2581', '</s>']
  expected = [vocabulary.encode(line) for line in lines]
  assert vocabulary.encode_batch(lines) == expected
  assert vocabulary.encode_batch([]) == []


def test_training_is_deterministic_and_takes_an_iterator(vocabulary):
  again = Vocabulary.train(iter(SENTENCES), SIZE)
  assert again.model_bytes == vocabulary.model_bytes
  assert again.fingerprint == vocabulary.fingerprint
  assert Vocabulary.train(SENTENCES, SIZE - 1).fingerprint != vocabulary.fingerprint


def test_training_uses_every_line_whatever_it_holds():
  odd = [
    'q' * 10_000,
    '\u2585 zebra zebra',
    '\x00 zebra',
    '\u2581 zebra \u2581',
    '<s> zebra </s>',
    '<0x41> zebra',
    '\t zebra',
    'zebra\nzebra',
    '',
  ]
  for line in odd[1:-1]:
    pieces = Vocabulary.train([line] * 50 + SENTENCES, SIZE)
    assert len(pieces.encode('zebra')) < 3, line
  longest = Vocabulary.train(odd + SENTENCES, SIZE)
  assert any('qqqq' in longest.piece(token) for token in range(SIZE))


@pytest.mark.parametrize(('size', 'limit'), [(5_000, 'at most'), (270, 'at least')])
def test_a_size_that_does_not_suit_the_text_says_the_nearest(capfd, size, limit):
  with pytest.raises(
    UserError, match=rf'{size} .*set --config.data.vocabulary_size to {limit} \d+'
  ) as caught:
    Vocabulary.train(SENTENCES, size)
  nearest = int(str(caught.value).split()[-1])
  assert Vocabulary.train(SENTENCES, nearest).size == nearest
  assert capfd.readouterr() == ('', '')  # SentencePiece says nothing.


@pytest.mark.parametrize(
  ('sentences', 'fact'),
  [
    ([], 'no text'),
    (['', ''], 'no text'),
    (['x'], 'too large for the training text'),
  ],
)
def test_training_on_too_little_text_is_an_error(sentences, fact):
  with pytest.raises(UserError, match=fact):
    Vocabulary.train(sentences, SIZE)


def test_a_damaged_or_missing_file_is_named(vocabulary, tmp_path):
  path = tmp_path / 'vocabulary.model'
  whole = vocabulary.model_bytes
  for damaged in [
    b'',
    b'not a model',
    *(whole[:cut] for cut in range(1, len(whole), 290)),
    *(whole[:-cut] for cut in range(1, 20)),
  ]:
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r'vocabulary\.model .*corrupt'):
      Vocabulary.load(path)
  with pytest.raises(UserError, match=r'none\.model cannot be read: No such file'):
    Vocabulary.load(tmp_path / 'none.model')


@pytest.mark.parametrize(
  'options',
  [
    {'pad_id': 0, 'bos_id': 1, 'eos_id': 2, 'unk_id': 3},  # our ids, but text is lost
    {
      'byte_fallback': True,
      'normalization_rule_name': 'identity',
      'remove_extra_whitespaces': False,
    },  # text is kept, but with other ids
  ],
)
def test_a_model_with_other_special_tokens_is_rejected(tmp_path, options):
  prefix = tmp_path / 'other'
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(SENTENCES),
    model_prefix=str(prefix),
    model_type='bpe',
    vocab_size=320 if 'byte_fallback' in options else 60,
    minloglevel=2,
    **options,
  )
  with pytest.raises(UserError, match=r'other\.model .*restore it'):
    Vocabulary.load(f'{prefix}.model')
