"""The vocabulary that a run begins with: given by a file, kept from another run, or learned."""

import itertools
import os
from collections.abc import Iterable

import sentencepiece
from absl import logging
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.data.batches.bpe_dropout import check_merges
from transformer.data.config import DataConfig
from transformer.data.vocabulary.adoption import adopt
from transformer.data.vocabulary.vocabularies import RunVocabulary, SeparateVocabularies, is_shared
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError

# The most training pairs to learn a vocabulary from, evenly drawn; all are held in memory.
VOCABULARY_PAIRS = 1_000_000
_TRIED = 500  # Training pairs whose cut by a given vocabulary is compared with that by merges.


def check_same(own: RunVocabulary, config: DataConfig, keys: Iterable[str]):
  """Refuses files that keys of a config name if they are there, and hold another vocabulary."""
  for key in keys:
    path = getattr(config, key)
    wanted = own.source if key == 'source_vocabulary' else own.target
    if (path and os.path.exists(os.path.expanduser(path))
        and adopt(path).fingerprint != wanted.fingerprint):
      raise UserError(f'data.{key}={path} holds another vocabulary than the run, which keeps its '
                      f'own; leave data.{key} as it was, or choose another --workdir')


def make_vocabulary(config: DataConfig, corpora,
                    earlier: RunVocabulary | None = None) -> RunVocabulary:
  """Loads the vocabularies that a config names, and makes the others for the training text.

  The `earlier` vocabulary, that of `train.init_from`, is kept, and grows to the size.
  """
  if earlier is not None and config.shared_vocabulary != is_shared(earlier):
    raise UserError(f'a run takes its vocabulary from train.init_from; set '
                    f'--config.data.shared_vocabulary={is_shared(earlier)}; got '
                    f'{config.shared_vocabulary}')
  if config.shared_vocabulary:
    return _make(config, corpora, 'vocabulary', 0, 1, earlier)
  source, target = earlier or (None, None)
  return SeparateVocabularies(_make(config, corpora, 'source_vocabulary', 0, 2, source),
                              _make(config, corpora, 'vocabulary', 1, 2, target))


def _make(config: DataConfig, corpora, key: str, first: int, step: int,
          earlier: Vocabulary | None) -> Vocabulary:
  """Returns the vocabulary of a key; learns it from each `step`-th sentence if needed."""
  def text(pairs):
    return itertools.islice(corpora.training_text(pairs), first, None, step)

  size, path = config.sizes[key], getattr(config, key)
  given, origin = (adopt(path), f'data.{key}') if path else (earlier, 'train.init_from')
  if given and config.bpe_dropout:
    check_merges(given, text(_TRIED), origin)
  if given and given.size == size:
    return given
  if path or (given and size < given.size):
    raise UserError(f'a run takes its vocabulary from {origin}; set '
                    f'--config.data.{key}_size={given.size}; got {size}')
  logging.info('training a %s of %d pieces on up to %d pairs', key.replace('_', ' '), size,
               VOCABULARY_PAIRS)
  learned = Vocabulary.train(text(VOCABULARY_PAIRS), size, f'{key}_size', full=not earlier)
  return grow(earlier, learned, size, key) if earlier else learned


def grow(vocabulary: Vocabulary, learned: Vocabulary, size: int, key: str) -> Vocabulary:
  """Adds the first new pieces that were learned from new text behind the pieces of a vocabulary.

  Their merges come after all merges of the vocabulary. Errors name the `key` of the config.
  """
  model = ModelProto.FromString(vocabulary.model_bytes)
  if model.trainer_spec.model_type != TrainerSpec.BPE:
    raise UserError(f'only a vocabulary of the type bpe can take new pieces; train.init_from has '
                    f'another; set --config.data.{key}_size={vocabulary.size}, or name a larger '
                    f'one by --config.data.{key}')
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
  return Vocabulary(model.SerializeToString(deterministic=True))


def spell(vocabulary: Vocabulary, earlier: Vocabulary) -> list[list[int]]:
  """Returns, for each piece, the ids of the earlier pieces that spell it: itself, if it is one."""
  model = ModelProto.FromString(earlier.model_bytes)
  model.normalizer_spec.add_dummy_prefix = False  # A piece within a word begins with no space.
  processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
  own = {earlier.piece(token): token for token in range(BYTE_IDS.stop, earlier.size)}
  pieces = [vocabulary.piece(token) for token in range(BYTE_IDS.stop, vocabulary.size)]
  return [[token] for token in range(BYTE_IDS.stop)] + [
      [own[piece]] if piece in own else processor.encode(piece) for piece in pieces]
