"""Lossless conversion of text to token ids and back with a SentencePiece model.

Whitespace is kept, unknown characters are encoded as bytes, and text is normalized only if a config
says so. Normalized text is decoded exactly.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer import files
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.config import DataConfig
from transformer.data.text.text_files import check_lines
from transformer.errors import UserError

BYTE_IDS = range(UNK_ID + 1, UNK_ID + 257)
_BYTES = [f'<0x{byte:02X}>' for byte in range(256)]

# SentencePiece writes a space as U+2581, and drops training lines that contain U+2585. So `_escape`
# replaces both, and the escape character itself, which is from a private use plane.
SPACE = '\u2581'
_ESCAPE = '\U000f2581'
ESCAPED = {_ESCAPE: _ESCAPE + '0', SPACE: _ESCAPE + '1', '\u2585': _ESCAPE + '2'}

# Fraction of the training text's characters; the rarest are encoded as bytes.
_CHARACTER_COVERAGE = 0.99999
# SentencePiece skips longer training lines, and accepts no larger value.
_LONGEST_LINE = 2**30
_ERRORS_ONLY = 2
# SentencePiece's errors for a size that does not fit the text: pattern, explanation, bound.
_SIZE_ERRORS = (
  (r'size too high .*<= (\d+)', 'is too large for the training text', 'at most'),
  (
    r'smaller than required_chars\. \d+ vs (\d+)',
    'is too small for the characters of the training text',
    'at least',
  ),
)
# `_PROBE` after encoding and decoding with each of `NORMALIZATIONS`. The result differs if a model
# lacks bytes, trims or merges spaces, normalizes otherwise, or is truncated but still parses.
_PROBE = '  \x00 ㏙ \u2581\u2028 '
_PROBES = {
  _PROBE: 'identity',
  '  \x00 PPM \u2581  ': 'nmt_nfkc',
  '  \x00 PPM \u2581\u2028 ': 'nfkc',
  '  \x00 ppm \u2581  ': 'nmt_nfkc_cf',
  '  \x00 ppm \u2581\u2028 ': 'nfkc_cf',
}
_Piece = ModelProto.SentencePiece
_FIRST_TYPES = _Piece.CONTROL, _Piece.UNKNOWN, _Piece.BYTE


class Vocabulary:
  """A SentencePiece model for both languages or for one; thread-safe.

  Ids 0 to 3 are PAD, BOS, EOS and UNK; the next 256 are the bytes. No text encodes to the first
  four ids: a literal `</s>` is four characters.

  Attributes:
    model_bytes: the SentencePiece model, a serialized protocol buffer.
    size: number of pieces.
    fingerprint: SHA-256 of `model_bytes`, in hexadecimal.
    normalization: the rule applied before segmentation, one of `NORMALIZATIONS`.
    source, target: this vocabulary, for both sides of a `RunVocabulary`.
  """

  def __init__(self, model_bytes: bytes, name: str = 'the vocabulary'):
    """Loads a model. Raises `UserError` if its reserved ids differ or it is not lossless."""
    processor = sentencepiece.SentencePieceProcessor()
    self._processor = processor
    normalization = None
    try:
      processor.LoadFromSerializedProto(model_bytes)
      ids = (
        processor.pad_id(),
        processor.bos_id(),
        processor.eos_id(),
        processor.unk_id(),
      )
      names = [self.piece(token) for token in BYTE_IDS]
      if ids == (PAD_ID, BOS_ID, EOS_ID, UNK_ID) and names == _BYTES:
        normalization = _PROBES.get(self.round_trip(_PROBE))
    except (RuntimeError, IndexError):
      pass
    if normalization is None:
      raise UserError(
        f'{name} is corrupt, or is not a SentencePiece model that round-trips text '
        'losslessly; restore it from a copy, or convert it as docs/vocabulary.md says'
      )
    self.model_bytes = model_bytes
    self.size = processor.get_piece_size()
    self.normalization = normalization
    self.fingerprint = hashlib.sha256(model_bytes).hexdigest()
    self.source = self.target = self

  @classmethod
  def train(
    cls,
    sentences: Iterable[str],
    size: int,
    key: str = 'vocabulary_size',
    config: DataConfig | None = None,
  ) -> 'Vocabulary':
    """Trains a vocabulary of `size` pieces; the same ordered sentences yield the same bytes.

    All sentences are held in memory. `key` is the setting of the size, for error messages.
    """
    config = config or DataConfig()
    # An option that is passed, even as False, is stored in the model.
    extra = {'split_digits': True} if config.split_digits else {}
    # A list, since SentencePiece would keep only the message of an iterator's exception.
    sentences = [_escape(sentence) for sentence in sentences]
    model = io.BytesIO()
    if not any(sentences):
      raise UserError(
        'the training corpora contain no text to train a vocabulary on; check data.train'
      )
    try:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type=config.vocabulary_kind,
        vocab_size=size,
        byte_fallback=True,
        character_coverage=_CHARACTER_COVERAGE,
        remove_extra_whitespaces=False,
        normalization_rule_name=config.normalization,
        pad_id=PAD_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        pad_piece='<pad>',
        max_sentence_length=_LONGEST_LINE,
        hard_vocab_limit=True,
        minloglevel=_ERRORS_ONLY,
        user_defined_symbols=list(config.user_defined_symbols),
        **extra,
      )
    except RuntimeError as error:
      for pattern, fact, limit in _SIZE_ERRORS:
        if nearest := re.search(pattern, str(error)):
          raise UserError(
            f'{key}={size} {fact}; set --config.data.{key} to {limit} {nearest[1]}'
          ) from error
      raise
    proto = ModelProto.FromString(model.getvalue())
    # User-defined symbols follow the bytes.
    proto.pieces.sort(key=lambda piece: piece.type not in _FIRST_TYPES)
    return cls(proto.SerializeToString(deterministic=True))

  @classmethod
  def load(cls, path: files.StrPath) -> 'Vocabulary':
    """Reads a file that `save` wrote."""
    return cls(read_model(path), f'the vocabulary {path}')

  def proto(self) -> ModelProto:
    """Returns the parsed model."""
    return ModelProto.FromString(self.model_bytes)

  @property
  def user_defined_symbols(self) -> dict[str, int]:
    """The ids of the user-defined symbols, by symbol."""
    return {
      piece.piece: token
      for token, piece in enumerate(self.proto().pieces)
      if piece.type == _Piece.USER_DEFINED
    }

  def save(self, path: files.StrPath):
    """Writes the model atomically."""
    files.write(path, self.model_bytes)

  def encode(self, sentence: str) -> list[int]:
    """Returns the ids of a sentence, without BOS and EOS."""
    return self._processor.encode(_escape(sentence))

  def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each sentence, as `encode` does; uses all cores."""
    check_lines(sentences)
    return self._processor.encode([_escape(sentence) for sentence in sentences])

  def decode(self, ids: Sequence[int] | np.ndarray) -> str:
    """Returns the text of `ids` up to the first EOS, as a single line of valid text."""
    ids = np.asarray(ids).tolist()
    if EOS_ID in ids:
      ids = ids[: ids.index(EOS_ID)]
    text = self._processor.decode(ids).replace('\n', ' ')
    # Unescapes the escape character last.
    for character, escaped in reversed(ESCAPED.items()):
      text = text.replace(escaped, character)
    return text

  def round_trip(self, text: str) -> str:
    """Returns a text after encoding and decoding: normalized, if the vocabulary does that."""
    return self.decode(self.encode(text))

  def piece(self, token: int) -> str:
    """Returns the piece of an id as the model stores it: `▁the` after a space, or `<0x0A>`."""
    return self._processor.id_to_piece(int(token))


def read_model(path: files.StrPath) -> bytes:
  """Returns the content of a vocabulary file. Raises `UserError` if it cannot be read."""
  try:
    return files.as_path(path).read_bytes()
  except OSError as error:
    raise UserError(
      f'the vocabulary {path} cannot be read: {error.strerror}; restore it from a '
      f'copy, or choose a different one'
    ) from error


def _escape(sentence: str) -> str:
  for character, escaped in ESCAPED.items():
    sentence = sentence.replace(character, escaped)
  return sentence
