"""Any SentencePiece model as a vocabulary of this project."""

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


def adopt(path: str | os.PathLike, normalisation: str = 'identity') -> Vocabulary:
  """Reads any SentencePiece model as a vocabulary that gives normalised text back as it was.

  The control symbols and the bytes come first, with the ids of this project; bytes that the model
  lacks are added. The trimming of spaces is left out, and the normalisation is replaced. All other
  pieces keep their order and scores, so text that neither normalises is cut as before.
  """
  model_bytes, original = read_model(path), sentencepiece.SentencePieceProcessor()
  try:
    original.LoadFromSerializedProto(model_bytes)
    model = ModelProto.FromString(model_bytes)
  except (RuntimeError, DecodeError):
    model = ModelProto()
  about, rules, count = model.trainer_spec, model.normalizer_spec, len(model.pieces)
  if (
    not count
    or about.model_type == TrainerSpec.WORD
    or about.treat_whitespace_as_suffix
    or not rules.escape_whitespaces
  ):
    raise UserError(
      f'the vocabulary {path} should hold a SentencePiece model of pieces of words, '
      f'with spaces before them; give a file that spm_train has written with '
      f'--model_type=bpe, unigram or char, and without --treat_whitespace_as_suffix'
    )
  first = _first_pieces(model, original)
  taken = {piece.piece for piece in first}
  pieces = first + [piece for piece in model.pieces if piece.piece not in taken]
  wanted = _charsmap(normalisation)
  normalises = (
    rules.precompiled_charsmap != wanted
    or rules.remove_extra_whitespaces
    or rules.normalization_rule_tsv
  )
  same = [piece.piece for piece in pieces] == [piece.piece for piece in model.pieces]
  if normalises or not same or not about.byte_fallback:
    logging.info(
      'the vocabulary %s is a model from elsewhere: its %d pieces are renumbered, %d '
      'for control symbols and bytes are added, and its normalisation is %s',
      path,
      count,
      len(pieces) - count,
      normalisation,
    )
    model.pieces.extend(pieces)
    del model.pieces[:count]
    about.pad_id, about.bos_id, about.eos_id, about.unk_id = (
      PAD_ID,
      BOS_ID,
      EOS_ID,
      UNK_ID,
    )
    about.pad_piece, about.bos_piece, about.eos_piece, about.unk_piece = (
      piece.piece for piece in model.pieces[:4]
    )
    about.byte_fallback, about.vocab_size = True, len(pieces)
    if normalises:
      rules.name, rules.remove_extra_whitespaces = normalisation, False
      rules.precompiled_charsmap, rules.normalization_rule_tsv = wanted, ''
    model.ClearField('denormalizer_spec')
    model.DiscardUnknownFields()  # Samples for a self-test, which have normalised text.
    model_bytes = model.SerializeToString(deterministic=True)
  return Vocabulary(model_bytes, f'the vocabulary {path}')


def _charsmap(normalisation: str) -> bytes:
  """Returns the compiled rules of a normalisation that SentencePiece names."""
  normalizer = sentencepiece.SentencePieceNormalizer(rule_name=normalisation)
  spec = NormalizerSpec.FromString(normalizer.serialized_normalizer_spec())
  return spec.precompiled_charsmap


def _first_pieces(
  model: ModelProto, original: sentencepiece.SentencePieceProcessor
) -> list[_Piece]:
  """Returns the control symbols and the bytes; a model's own where it has them."""
  known = {piece.piece: piece for piece in model.pieces if piece.type == _Piece.BYTE}
  return [
    model.pieces[own] if own >= 0 else _Piece(piece=name, type=kind)
    for own, name, kind in (
      (original.pad_id(), '<pad>', _Piece.CONTROL),
      (original.bos_id(), '<s>', _Piece.CONTROL),
      (original.eos_id(), '</s>', _Piece.CONTROL),
      (original.unk_id(), '<unk>', _Piece.UNKNOWN),
    )
  ] + [
    known.get(name, _Piece(piece=name, type=_Piece.BYTE))
    for name in (f'<0x{byte:02X}>' for byte in range(256))
  ]
