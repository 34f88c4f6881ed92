"""The pieces of vocabularies, in the form that other formats need."""

from collections.abc import Iterable

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary

_Piece = ModelProto.SentencePiece
# By how much SentencePiece scores an unknown character below all pieces.
_UNKNOWN_PENALTY = 10.0


def pieces_of(vocabulary: RunVocabulary) -> tuple[list[str], list[str]]:
  """Returns the pieces of the source and target vocabularies, by id."""
  return _pieces_of(vocabulary.source), _pieces_of(vocabulary.target)


def _pieces_of(side: Vocabulary) -> list[str]:
  return [side.piece(token) for token in range(side.size)]


def extend(
  vocabulary: Vocabulary, symbols: Iterable[str] = (), others: Iterable[str] = ()
) -> Vocabulary:
  """Returns a vocabulary with new pieces appended; existing ones are skipped.

  The segmentation of text changes only for characters that were represented as bytes, and for
  `symbols`, which are always single tokens, such as `▁>>fra<<`. Longer `others` never result from
  segmentation.
  """
  model = vocabulary.proto()
  names = {piece.piece for piece in model.pieces}
  score = min(piece.score for piece in model.pieces) - _UNKNOWN_PENALTY
  for default_kind, pieces in ((_Piece.USER_DEFINED, symbols), (_Piece.UNUSED, others)):
    for piece in pieces:
      if piece not in names:
        names.add(piece)
        kind = _Piece.NORMAL if len(piece) == 1 else default_kind
        model.pieces.add(piece=piece, type=kind, score=score)
  model.trainer_spec.vocab_size = len(model.pieces)
  if len(model.pieces) == vocabulary.size:
    return vocabulary
  return Vocabulary(model.SerializeToString(deterministic=True))
