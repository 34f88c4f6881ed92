"""Phrases begin a word, and pieces tell whether they continue one."""

import io

import sentencepiece

from tests.data.vocabulary.test_vocabulary import SENTENCES, SIZE, vocabulary  # noqa: F401
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.tools.constrain.word_pieces import continue_words, encode_phrase


def test_a_phrase_begins_a_word(vocabulary):  # noqa: F811
  assert encode_phrase(vocabulary, 'the dog') == vocabulary.encode('the dog')
  # A vocabulary that puts no space before a line: the phrase has one, wherever it stands.
  bare = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(SENTENCES), model_writer=bare, model_type='bpe', vocab_size=SIZE,
      byte_fallback=True, normalization_rule_name='identity', remove_extra_whitespaces=False,
      add_dummy_prefix=False, pad_id=PAD_ID, bos_id=BOS_ID, eos_id=EOS_ID, unk_id=UNK_ID,
      minloglevel=2)
  bare = Vocabulary.from_bytes(bare.getvalue())
  assert bare.decode(bare.encode('the dog')) == 'the dog'
  assert bare.decode(encode_phrase(bare, 'the dog')) == ' the dog'


def test_pieces_that_continue_a_word_begin_with_a_part_of_one(vocabulary):  # noqa: F811
  continues = continue_words(vocabulary)
  by_piece = {vocabulary.piece(token): continues[token] for token in range(SIZE)}
  for piece, wanted in {'a': True, '▁a': False, '▁': False, '.': False, '</s>': False,
                        '<unk>': False, '<pad>': True, '<s>': True, '<0x41>': True,
                        '<0xC3>': True}.items():
    assert by_piece[piece] == wanted, piece
  accented = Vocabulary.train(['e\u0301 ' * 9 + '٣ 5 '], 264 + 4)
  by_piece = {accented.piece(token): flag for token, flag in enumerate(continue_words(accented))}
  assert by_piece['\u0301'] and by_piece['٣'] and by_piece['5']
