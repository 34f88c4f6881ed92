"""The vocabulary that a run begins with: of any SentencePiece file, of another run, or learned."""

import itertools
import os
from collections.abc import Iterable

import sentencepiece
from absl import logging
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

from transformer import files
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.batches.bpe_dropout import check_merges
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabularies import RunVocabulary, SeparateVocabularies, is_shared
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary, read_model
from transformer.errors import UserError

# The most training pairs to learn a vocabulary from, evenly drawn; all are held in memory.
VOCABULARY_PAIRS = 1_000_000
_Piece = ModelProto.SentencePiece
_TRIED = 500  # Training pairs whose cut by a given vocabulary is compared with that by merges.


def adopt(
  path: str | os.PathLike, normalisation: str = 'identity', symbols: Iterable[str] = ()
) -> Vocabulary:
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
  wanted = NormalizerSpec.FromString(
    sentencepiece.SentencePieceNormalizer(rule_name=normalisation).serialized_normalizer_spec()
  ).precompiled_charsmap
  normalises = (
    rules.precompiled_charsmap != wanted
    or rules.remove_extra_whitespaces
    or rules.normalization_rule_tsv
  )
  same = [piece.piece for piece in pieces] == [piece.piece for piece in model.pieces]
  if normalises or not same or not about.byte_fallback:
    logging.info(
      'the vocabulary %s is a model from elsewhere: its %d pieces are renumbered, %d '
      'for control symbols and bytes are added, and it normalises text by '
      'data.normalisation=%s',
      path,
      count,
      len(pieces) - count,
      normalisation,
    )
    model.pieces.extend(pieces)
    del model.pieces[:count]
    about.pad_id, about.bos_id, about.eos_id, about.unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID
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
  return with_symbols(Vocabulary(model_bytes, f'the vocabulary {path}'), symbols)


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


def with_symbols(vocabulary: Vocabulary, symbols: Iterable[str]) -> Vocabulary:
  """Returns a vocabulary in which texts are symbols; those that it lacks follow its pieces."""
  if vocabulary.symbols.keys() >= set(symbols):
    return vocabulary
  model = vocabulary.proto()
  known = {piece.piece: piece for piece in model.pieces}
  for symbol in symbols:
    piece = known.get(symbol) or model.pieces.add(piece=symbol)
    piece.type = _Piece.USER_DEFINED
  model.trainer_spec.vocab_size = len(model.pieces)
  return Vocabulary(model.SerializeToString(deterministic=True))


def check_same(own: RunVocabulary, config: DataConfig, keys: Iterable[str]):
  """Refuses files that keys of a config name if they are there, and hold another vocabulary."""
  for key in keys:
    path = getattr(config, key)
    wanted = own.source if key == 'source_vocabulary' else own.target
    if (
      path
      and files.as_path(path).exists()
      and adopt(path, config.normalisation, config.symbols).fingerprint != wanted.fingerprint
    ):
      raise UserError(
        f'data.{key}={path} holds another vocabulary than the run, which keeps its '
        f'own; leave data.{key} as it was, or choose another --workdir'
      )


def make_vocabulary(
  config: DataConfig, corpora, earlier: RunVocabulary | None = None
) -> RunVocabulary:
  """Loads the vocabularies that a config names, and makes the others for the training text.

  The `earlier` vocabulary, that of `train.init_from`, is kept, and grows to the size.
  """
  if earlier is not None and config.shared_vocabulary != is_shared(earlier):
    raise UserError(
      f'a run takes its vocabulary from train.init_from; set '
      f'--config.data.shared_vocabulary={is_shared(earlier)}; got '
      f'{config.shared_vocabulary}'
    )
  if config.shared_vocabulary:
    return _make(config, corpora, 'vocabulary', 0, 1, earlier)
  source, target = earlier or (None, None)
  return SeparateVocabularies(
    _make(config, corpora, 'source_vocabulary', 0, 2, source),
    _make(config, corpora, 'vocabulary', 1, 2, target),
  )


def _make(
  config: DataConfig, corpora, key: str, first: int, step: int, earlier: Vocabulary | None
) -> Vocabulary:
  """Returns the vocabulary of a key; learns it from each `step`-th sentence if needed."""

  def text(pairs):
    return itertools.islice(corpora.training_text(pairs), first, None, step)

  size, path = config.sizes[key], getattr(config, key)
  earlier = earlier and with_symbols(earlier, config.symbols)
  given, origin = earlier, 'train.init_from'
  if path:
    given, origin = adopt(path, config.normalisation, config.symbols), f'data.{key}'
  if given:
    _check_kind(given, config, origin)
  if given and config.bpe_dropout:
    check_merges(given, text(_TRIED), origin)
  if given and given.size == size:
    return given
  if path or (given and size < given.size):
    raise UserError(
      f'a run takes its vocabulary from {origin}; set '
      f'--config.data.{key}_size={given.size}; got {size}'
    )
  logging.info(
    'training a %s of %d pieces on up to %d pairs', key.replace('_', ' '), size, VOCABULARY_PAIRS
  )
  learned = Vocabulary.train(text(VOCABULARY_PAIRS), size, f'{key}_size', not earlier, config)
  return grow(earlier, learned, size, key) if earlier else learned


def _check_kind(given: Vocabulary, config: DataConfig, origin: str):
  """Refuses settings that a vocabulary, which an `origin` gives, does not obey."""
  about = given.proto().trainer_spec
  is_unigram = about.model_type == TrainerSpec.UNIGRAM
  for key, fits, value in (
    ('vocabulary_kind', is_unigram or config.vocabulary_kind != 'unigram', 'bpe'),
    ('split_digits', about.split_digits or not config.split_digits, False),
    ('normalisation', config.normalisation == given.normalisation, given.normalisation),
  ):
    if not fits:
      raise UserError(
        f'a run takes its vocabulary from {origin}; set --config.data.{key}={value}; '
        f'got {getattr(config, key)}'
      )


def grow(vocabulary: Vocabulary, learned: Vocabulary, size: int, key: str) -> Vocabulary:
  """Adds the first new pieces that were learned from new text behind the pieces of a vocabulary.

  Their merges come after all merges of the vocabulary. Errors name the `key` of the config.
  """
  model = vocabulary.proto()
  if model.trainer_spec.model_type != TrainerSpec.BPE:
    raise UserError(
      f'only a vocabulary of the type bpe can take new pieces; train.init_from has '
      f'another; set --config.data.{key}_size={vocabulary.size}, or name a larger '
      f'one by --config.data.{key}'
    )
  known = {piece.piece for piece in model.pieces}
  new = [
    piece
    for token in range(BYTE_IDS.stop, learned.size)
    if (piece := learned.piece(token)) not in known
  ]
  # A longer piece is merged from characters, which SentencePiece puts behind all merges.
  new = sorted(new, key=lambda piece: len(piece) > 1)[: size - vocabulary.size]
  if len(new) < size - vocabulary.size:
    raise UserError(
      f'data.{key}_size={size} is more than the training text can fill; it adds '
      f'{len(new)} pieces to the {vocabulary.size} of train.init_from; set '
      f'--config.data.{key}_size to at most {vocabulary.size + len(new)}'
    )
  lowest = min(piece.score for piece in model.pieces)
  for number, piece in enumerate(new, 1):
    model.pieces.add(piece=piece, score=lowest - number)
  model.trainer_spec.vocab_size = size
  return Vocabulary(model.SerializeToString(deterministic=True))


def spell(vocabulary: Vocabulary, earlier: Vocabulary) -> list[list[int]]:
  """Returns, for each piece, the ids of the earlier pieces that spell it: itself, if it is one."""
  model = earlier.proto()
  model.normalizer_spec.add_dummy_prefix = False  # A piece within a word begins with no space.
  model.normalizer_spec.ClearField('precompiled_charsmap')  # No piece becomes an empty text.
  processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
  own = {earlier.piece(token): token for token in range(BYTE_IDS.stop, earlier.size)}
  pieces = [vocabulary.piece(token) for token in range(BYTE_IDS.stop, vocabulary.size)]
  return [[token] for token in range(BYTE_IDS.stop)] + [
    [own[piece]] if piece in own else processor.encode(piece) for piece in pieces
  ]
