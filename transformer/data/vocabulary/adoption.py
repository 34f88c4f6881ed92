"""SentencePiece models from elsewhere, made into vocabularies of this project."""

import os
from pathlib import Path

import sentencepiece
from absl import logging
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

_Piece = ModelProto.SentencePiece


def adopt(path: str | os.PathLike) -> Vocabulary:
  """Reads any SentencePiece model as a vocabulary that gives every text back as it was.

  The control symbols and the bytes get the ids of this project, which come first. Bytes that the
  model lacks are added, so that unknown characters can be spelt. Normalisation and the trimming
  of spaces are left out. All other pieces keep their order and their scores. So text that the
  model would not normalise is cut into the same pieces as before.

  Raises:
    UserError: the file cannot be read, or is no model that can be used.
  """
  try:
    model_bytes = Path(os.path.expanduser(path)).read_bytes()
  except OSError as error:
    raise UserError(f'the vocabulary {path} cannot be read: {error.strerror}') from error
  original = sentencepiece.SentencePieceProcessor()
  try:
    original.LoadFromSerializedProto(model_bytes)
    model = ModelProto.FromString(model_bytes)
  except (RuntimeError, DecodeError):
    model = ModelProto()
  about = model.trainer_spec
  if (not model.pieces or about.model_type == TrainerSpec.WORD or about.treat_whitespace_as_suffix
      or not model.normalizer_spec.escape_whitespaces):
    raise UserError(f'the vocabulary {path} should hold a SentencePiece model of pieces of words, '
                    f'with spaces before them; give a file that spm_train has written with '
                    f'--model_type=bpe, unigram or char, and without --treat_whitespace_as_suffix')
  converted = _converted(model, original)
  if _essence(converted) != _essence(model):
    logging.info('the vocabulary %s is a model from elsewhere: its %d pieces are renumbered, %d '
                 'for control symbols and bytes are added, and it normalises nothing', path,
                 len(model.pieces), len(converted.pieces) - len(model.pieces))
    model_bytes = converted.SerializeToString(deterministic=True)
  return Vocabulary.from_bytes(model_bytes, f'the vocabulary {path}')


def _essence(model: ModelProto) -> tuple:
  """Returns what a conversion may change in a model."""
  rules = model.normalizer_spec
  return ([piece.piece for piece in model.pieces], model.trainer_spec.byte_fallback,
          rules.precompiled_charsmap, rules.remove_extra_whitespaces, rules.normalization_rule_tsv)


def _converted(model: ModelProto, original: sentencepiece.SentencePieceProcessor) -> ModelProto:
  """Returns a model with the ids of this project, with all bytes, and without normalisation."""
  pieces = list(model.pieces)
  first = [pieces[own] if own >= 0 else _Piece(piece=name, type=kind) for own, name, kind in (
      (original.pad_id(), '<pad>', _Piece.CONTROL), (original.bos_id(), '<s>', _Piece.CONTROL),
      (original.eos_id(), '</s>', _Piece.CONTROL), (original.unk_id(), '<unk>', _Piece.UNKNOWN))]
  known = {piece.piece: piece for piece in pieces if piece.type == _Piece.BYTE}
  first += [known.get(name, _Piece(piece=name, type=_Piece.BYTE))
            for name in (f'<0x{byte:02X}>' for byte in range(256))]
  taken = {piece.piece for piece in first}
  changed = ModelProto()
  changed.CopyFrom(model)
  del changed.pieces[:]
  changed.pieces.extend(first)
  changed.pieces.extend(piece for piece in pieces if piece.piece not in taken)
  about = changed.trainer_spec
  about.pad_id, about.bos_id, about.eos_id, about.unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID
  about.pad_piece, about.bos_piece, about.eos_piece, about.unk_piece = (
      piece.piece for piece in first[:4])
  about.byte_fallback, about.vocab_size = True, len(changed.pieces)
  rules = changed.normalizer_spec
  if rules.precompiled_charsmap or rules.remove_extra_whitespaces or rules.normalization_rule_tsv:
    rules.name, rules.remove_extra_whitespaces = 'identity', False
    rules.precompiled_charsmap, rules.normalization_rule_tsv = b'', ''
  changed.ClearField('denormalizer_spec')
  changed.DiscardUnknownFields()  # Samples for a self-test, which have normalised text.
  return changed
