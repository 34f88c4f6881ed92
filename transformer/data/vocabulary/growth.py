"""Vocabularies that take the place of an earlier one, whose pieces and embeddings they keep."""

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError


def grow(vocabulary: Vocabulary, learned: Vocabulary, size: int, key: str) -> Vocabulary:
  """Adds the first new pieces of a learned vocabulary behind the pieces of another.

  The merges of the new pieces come after all merges of the first vocabulary.

  Args:
    vocabulary: its pieces keep their ids.
    learned: a vocabulary of the new text alone.
    size: the number of pieces of the result.
    key: the key of `config.data` that may name a vocabulary, for error messages.

  Raises:
    UserError: the first vocabulary does not work by merges, or the second one has too few
      new pieces.
  """
  model = ModelProto.FromString(vocabulary.model_bytes)
  if model.trainer_spec.model_type != TrainerSpec.BPE:
    kind = TrainerSpec.ModelType.Name(model.trainer_spec.model_type).lower()
    raise UserError(f'only a vocabulary of the type bpe can take new pieces; that of '
                    f'train.init_from has the type {kind}; set '
                    f'--config.data.{key}_size={vocabulary.size}, or name a larger one by '
                    f'--config.data.{key}')
  known = {piece.piece for piece in model.pieces}
  new = [piece for token in range(BYTE_IDS.stop, learned.size)
         if (piece := learned.piece(token)) not in known]
  # A longer piece is merged from characters, which SentencePiece puts behind all merges.
  new = sorted(new, key=lambda piece: len(piece) > 1)[:size - vocabulary.size]
  if len(new) < size - vocabulary.size:
    raise UserError(f'data.{key}_size={size} is more than the training text can fill; it adds '
                    f'{len(new)} pieces to the {vocabulary.size} of train.init_from; set '
                    f'--config.data.{key}_size to at most {vocabulary.size + len(new)}')
  lowest = min(piece.score for piece in model.pieces)
  for number, piece in enumerate(new, 1):
    model.pieces.add(piece=piece, score=lowest - number)
  model.trainer_spec.vocab_size = size
  return Vocabulary.from_bytes(model.SerializeToString(deterministic=True))


def spell(vocabulary: Vocabulary, earlier: Vocabulary) -> list[list[int]]:
  """Returns, for each piece of a vocabulary, the ids of the earlier pieces that spell it.

  A piece that both have is spelt by itself, so it has one id.
  """
  model = ModelProto.FromString(earlier.model_bytes)
  # A piece within a word must not begin with a space.
  model.normalizer_spec.add_dummy_prefix = False
  processor = sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(model.SerializeToString())
  own = {earlier.piece(token): token for token in range(BYTE_IDS.stop, earlier.size)}
  pieces = [vocabulary.piece(token) for token in range(BYTE_IDS.stop, vocabulary.size)]
  return [[token] for token in range(BYTE_IDS.stop)] + [
      [own[piece]] if piece in own else processor.encode(piece) for piece in pieces]
