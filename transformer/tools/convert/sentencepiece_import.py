"""Imports any SentencePiece model as a vocabulary of this project."""

import os

import sentencepiece
from absl import logging
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import (
  ModelProto,
  NormalizerSpec,
  TrainerSpec,
)

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import Vocabulary, read_model
from transformer.errors import UserError

_Piece = ModelProto.SentencePiece


def import_sentencepiece(
  path: str | os.PathLike, normalization: str = 'identity'
) -> Vocabulary:
  """Imports a SentencePiece model as a vocabulary that decodes normalized text without loss.

  Control symbols and bytes come first, with this project's ids; bytes that the model lacks are
  added. Trimming of spaces is removed, and the normalization is replaced. All other pieces keep
  their order and scores, so text that neither normalization changes has the same segmentation.
  """
  model_bytes = read_model(path)
  original = sentencepiece.SentencePieceProcessor()
  try:
    original.LoadFromSerializedProto(model_bytes)
    model = ModelProto.FromString(model_bytes)
  except (RuntimeError, DecodeError):
    model = ModelProto()
  _check_pieces_of_words(model, path)
  count = len(model.pieces)
  pieces = _in_order(model, original)
  moved = [piece.piece for piece in pieces] != [piece.piece for piece in model.pieces]
  rules = model.normalizer_spec
  charsmap = _charsmap(normalization)
  normalizes = (
    rules.precompiled_charsmap != charsmap
    or rules.remove_extra_whitespaces
    or rules.normalization_rule_tsv
  )
  if normalizes or moved or not model.trainer_spec.byte_fallback:
    logging.info(
      'the vocabulary %s is from another project: its %d pieces are renumbered, %d for control '
      'symbols and bytes are added, and its normalization is %s',
      path,
      count,
      len(pieces) - count,
      normalization,
    )
    model.pieces.extend(pieces)
    del model.pieces[:count]
    _describe_pieces(model)
    if normalizes:
      rules.name = normalization
      rules.precompiled_charsmap = charsmap
      rules.normalization_rule_tsv = ''
      rules.remove_extra_whitespaces = False
    model.ClearField('denormalizer_spec')
    model.DiscardUnknownFields()  # Self-test samples contain normalized text.
    model_bytes = model.SerializeToString(deterministic=True)
  return Vocabulary(model_bytes, f'the vocabulary {path}')


def _check_pieces_of_words(model: ModelProto, path: str | os.PathLike):
  """Raises `UserError` for a model that segments text differently."""
  spec = model.trainer_spec
  if (
    not model.pieces
    or spec.model_type == TrainerSpec.WORD
    or spec.treat_whitespace_as_suffix
    or not model.normalizer_spec.escape_whitespaces
  ):
    raise UserError(
      f'the vocabulary {path} should hold a SentencePiece model of pieces of words, with spaces '
      'before them; pass a file that spm_train has written with --model_type=bpe, unigram or '
      'char, and without --treat_whitespace_as_suffix'
    )


def _describe_pieces(model: ModelProto):
  """Updates the model's metadata for its pieces, which have this project's ids."""
  spec = model.trainer_spec
  spec.pad_id = PAD_ID
  spec.bos_id = BOS_ID
  spec.eos_id = EOS_ID
  spec.unk_id = UNK_ID
  spec.pad_piece = model.pieces[PAD_ID].piece
  spec.bos_piece = model.pieces[BOS_ID].piece
  spec.eos_piece = model.pieces[EOS_ID].piece
  spec.unk_piece = model.pieces[UNK_ID].piece
  spec.byte_fallback = True
  spec.vocab_size = len(model.pieces)


def _charsmap(normalization: str) -> bytes:
  """Returns the compiled rules of a normalization, by its SentencePiece name."""
  normalizer = sentencepiece.SentencePieceNormalizer(rule_name=normalization)
  spec = NormalizerSpec.FromString(normalizer.serialized_normalizer_spec())
  return spec.precompiled_charsmap


def _in_order(
  model: ModelProto, original: sentencepiece.SentencePieceProcessor
) -> list[_Piece]:
  """Returns the control symbols, the bytes and the other pieces of a model, in this order.

  Control symbols and bytes that the model lacks are added.
  """
  pieces = []
  for token, name, kind in (
    (original.pad_id(), '<pad>', _Piece.CONTROL),
    (original.bos_id(), '<s>', _Piece.CONTROL),
    (original.eos_id(), '</s>', _Piece.CONTROL),
    (original.unk_id(), '<unk>', _Piece.UNKNOWN),
  ):
    added = _Piece(piece=name, type=kind)
    pieces.append(model.pieces[token] if token >= 0 else added)
  by_name = {piece.piece: piece for piece in model.pieces if piece.type == _Piece.BYTE}
  for byte in range(256):
    name = f'<0x{byte:02X}>'
    pieces.append(by_name.get(name, _Piece(piece=name, type=_Piece.BYTE)))
  names = {piece.piece for piece in pieces}
  return pieces + [piece for piece in model.pieces if piece.piece not in names]
