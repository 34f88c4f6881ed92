"""Text to token ids and back, without the loss of a character.

A SentencePiece BPE model serves both languages, or one of them. It normalises nothing, keeps
white space, and spells unknown characters in bytes. So `decode` returns exactly the line that
`encode` was given.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from transformer import files
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import SMALLEST_VOCABULARY
from transformer.data.text.text_files import check_several
from transformer.errors import UserError

BYTE_IDS = range(UNK_ID + 1, UNK_ID + 257)

# SentencePiece writes a space as U+2581, and drops training lines that contain U+2585. So
# `_escape` replaces both characters, and the escape character itself. It writes the escape
# character, which is from a private plane, and then a digit.
SPACE = '\u2581'
_ESCAPE = '\U000f2581'
ESCAPED = {_ESCAPE: _ESCAPE + '0', SPACE: _ESCAPE + '1', '\u2585': _ESCAPE + '2'}
_UNESCAPED = {escaped: character for character, escaped in ESCAPED.items()}
_RESERVED = re.compile('|'.join(ESCAPED))
_SEQUENCE = re.compile('|'.join(_UNESCAPED))

# The share of the training text whose characters get pieces. The rarest characters, such as
# those of a name in another script, are spelt in bytes. Each of them saves a row of the embedding.
_CHARACTER_COVERAGE = 0.99999
# SentencePiece skips longer training lines. This is the largest value that it accepts.
_LONGEST_LINE = 2**30
_ERRORS_ONLY = 2
# A model changes a part of this text if it lacks bytes, trims or joins spaces, normalises, or
# is truncated in a way that can still be parsed.
_PROBE = '  \x00 ﬁ \u2581\u2028 '


class Vocabulary:
  """A byte-pair encoding, of both languages or of one.

  Ids 0 to 3 are padding, begin, end and unknown; the next 256 are the bytes. No text
  encodes to the first four ids: a literal `</s>` is four characters. Instances are
  immutable, and can be shared between threads.

  Attributes:
    model_bytes: the SentencePiece model, a serialised protocol buffer.
    size: number of pieces; ids run from 0 to `size - 1`.
    fingerprint: SHA-256 of `model_bytes`, in hexadecimal.
    source, target: this vocabulary, as `SeparateVocabularies` has two that differ.
  """

  def __init__(self, processor: sentencepiece.SentencePieceProcessor, model_bytes: bytes):
    """Wraps a loaded model; use `train`, `load` or `from_bytes`."""
    self._processor = processor
    self.model_bytes = model_bytes
    self.size = processor.get_piece_size()
    self.fingerprint = hashlib.sha256(model_bytes).hexdigest()
    self.source = self.target = self

  @classmethod
  def train(cls, sentences: Iterable[str], size: int,
            key: str = 'vocabulary_size', full: bool = True) -> 'Vocabulary':
    """Trains a vocabulary of a size; the same sentences in the same order give the same bytes.

    All sentences are held in memory. `key` of `config.data` sets the size, for error messages.
    If not `full`, there are fewer pieces where the text is too little for the size.

    Raises:
      UserError: there is no text, or `size` is too large or too small for the text.
    """
    # A list, since SentencePiece would keep only the message of an error of an iterator.
    sentences, model = [_escape(sentence) for sentence in sentences], io.BytesIO()
    try:
      sentencepiece.SentencePieceTrainer.train(
          sentence_iterator=iter(sentences), model_writer=model,
          model_type='bpe', vocab_size=size, character_coverage=_CHARACTER_COVERAGE,
          byte_fallback=True, normalization_rule_name='identity', remove_extra_whitespaces=False,
          pad_id=PAD_ID, bos_id=BOS_ID, eos_id=EOS_ID, unk_id=UNK_ID, pad_piece='<pad>',
          max_sentence_length=_LONGEST_LINE, hard_vocab_limit=full,
          minloglevel=_ERRORS_ONLY)
    except RuntimeError as error:
      raise _size_error(size, key, str(error)) from error
    return cls.from_bytes(model.getvalue())

  @classmethod
  def from_bytes(cls, model_bytes: bytes, name: str = 'the vocabulary') -> 'Vocabulary':
    """Loads a vocabulary from its `model_bytes`; a damaged one is a `UserError` with its `name`.

    So is one that has other ids for the control symbols and bytes, or does not give text back.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
      processor.LoadFromSerializedProto(model_bytes)
    except RuntimeError as error:
      raise UserError(f'{name} should hold a SentencePiece model, but is damaged '
                      f'({len(model_bytes)} bytes); restore it from a copy') from error
    vocabulary = cls(processor, model_bytes)
    ids = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
    if (ids != (PAD_ID, BOS_ID, EOS_ID, UNK_ID)
        or any(vocabulary.piece(token) != f'<0x{byte:02X}>' for byte, token in enumerate(BYTE_IDS))
        or vocabulary.decode(vocabulary.encode(_PROBE)) != _PROBE):
      raise UserError(f'{name} is damaged, or does not give text back as it was; restore it from '
                      f'a copy')
    return vocabulary

  @classmethod
  def load(cls, path: str | os.PathLike, fingerprint: str | None = None) -> 'Vocabulary':
    """Reads a file that `save` wrote; it must have the `fingerprint`, if one is given."""
    try:
      model_bytes = Path(path).read_bytes()
    except OSError as error:
      raise UserError(f'the vocabulary {path} cannot be read: {error.strerror}') from error
    if fingerprint is not None and hashlib.sha256(model_bytes).hexdigest() != fingerprint:
      raise UserError(f'the vocabulary {path} is damaged, or is not the one that the run began '
                      f'with; its SHA-256 should be {fingerprint}; restore it from a copy')
    return cls.from_bytes(model_bytes, f'the vocabulary {path}')

  def save(self, path: str | os.PathLike):
    """Writes the model atomically."""
    files.write(path, self.model_bytes)

  def encode(self, sentence: str) -> list[int]:
    """Returns the ids of a sentence, without begin and end tokens."""
    return self._processor.encode(_escape(sentence))

  def encode_batch(self, sentences: Sequence[str],
                   num_threads: int | None = None) -> list[list[int]]:
    """Returns `encode` of each sentence, computed by `num_threads` threads or on all cores."""
    check_several(sentences)
    return self._processor.encode([_escape(sentence) for sentence in sentences],
                                  num_threads=num_threads)

  def decode(self, ids: Sequence[int] | np.ndarray) -> str:
    """Returns the text of `ids` up to the first end token, as a single line.

    Omits padding and begin tokens. A model may emit ids that `encode` never returns. An
    unknown token becomes ` ⁇ `, bytes that are not UTF-8 become U+FFFD, and a line end
    becomes a space.

    Raises:
      IndexError: an id is not in the vocabulary.
    """
    ids = np.asarray(ids).tolist()
    if EOS_ID in ids:
      ids = ids[:ids.index(EOS_ID)]
    text = self._processor.decode(ids).replace('\n', ' ')
    return _SEQUENCE.sub(lambda match: _UNESCAPED[match[0]], text) if _ESCAPE in text else text

  def piece(self, token: int) -> str:
    """Returns a piece as the model stores it, such as `▁the` after a space, or `<0x0A>`."""
    return self._processor.id_to_piece(int(token))


def _escape(sentence: str) -> str:
  return _RESERVED.sub(lambda match: ESCAPED[match[0]], sentence)


def _size_error(size: int, key: str, message: str) -> Exception:
  """Returns an error that says what to set, given SentencePiece's message about the size."""
  if '!sentences_.empty()' in message:
    return UserError('a vocabulary needs text to be trained on; the training corpora hold none')
  largest = re.search(r'size too high .*<= (\d+)', message)
  smallest = re.search(r'smaller than required_chars\. \d+ vs (\d+)', message)
  if largest and int(largest[1]) < SMALLEST_VOCABULARY:
    return UserError(f'the training text is too small to learn a vocabulary of {size} from; add '
                     'text')
  if largest or smallest:
    fact, limit = (('is more than the training text can fill', f'at most {largest[1]}') if largest
                   else ('is too few for its characters', f'at least {smallest[1]}'))
    return UserError(f'{key}={size} {fact}; set --config.data.{key} to {limit}')
  return RuntimeError(message)
