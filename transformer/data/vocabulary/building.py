"""Builds the vocabulary of a new run: from a file, from another run, or by training."""

import itertools
from collections.abc import Iterable

from absl import logging
from sentencepiece.sentencepiece_model_pb2 import TrainerSpec

from transformer.data.config import DataConfig
from transformer.data.corpora import Corpora
from transformer.data.vocabulary.vocabularies import (
  RunVocabulary,
  SeparateVocabularies,
  is_shared,
)
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

# Maximum number of training pairs for a vocabulary, evenly spaced; all are held in memory.
VOCABULARY_PAIRS = 1_000_000


def add_user_defined_symbols(
  vocabulary: Vocabulary, symbols: Iterable[str]
) -> Vocabulary:
  """Returns the vocabulary with user-defined symbols; missing ones are appended to its pieces."""
  if vocabulary.user_defined_symbols.keys() >= set(symbols):
    return vocabulary
  model = vocabulary.proto()
  pieces = {piece.piece: piece for piece in model.pieces}
  for symbol in symbols:
    piece = pieces.get(symbol) or model.pieces.add(piece=symbol)
    piece.type = piece.USER_DEFINED
  model.trainer_spec.vocab_size = len(model.pieces)
  return Vocabulary(model.SerializeToString(deterministic=True))


def build_vocabulary(
  config: DataConfig, corpora: Corpora, earlier: RunVocabulary | None = None
) -> RunVocabulary:
  """Loads the vocabularies that a config names, and trains the others on the training text.

  The `earlier` vocabulary, from `train.init_from`, is kept unless the config names another.
  """
  if earlier is not None and config.shared_vocabulary != is_shared(earlier):
    raise UserError(
      'the vocabulary comes from train.init_from; set '
      f'--config.data.shared_vocabulary={is_shared(earlier)}; got {config.shared_vocabulary}'
    )
  if config.shared_vocabulary:
    return _build(config, corpora, 'vocabulary', earlier)
  source, target = earlier or (None, None)
  return SeparateVocabularies(
    _build(config, corpora, 'source_vocabulary', source),
    _build(config, corpora, 'vocabulary', target),
  )


def _build(
  config: DataConfig, corpora: Corpora, key: str, earlier: Vocabulary | None
) -> Vocabulary:
  """Returns the vocabulary in the file that `key` names, or else `earlier`, or trains one."""
  path = getattr(config, key)
  vocabulary = Vocabulary.load(path) if path else earlier
  if vocabulary is not None:
    extended = add_user_defined_symbols(vocabulary, config.user_defined_symbols)
    if not path and extended is not vocabulary:
      raise UserError(
        'the vocabulary comes from train.init_from, which lacks some of '
        'data.user_defined_symbols; remove them, or transfer the weights to another '
        'vocabulary, as docs/vocabulary.md shows'
      )
    _check_settings(extended, config, key, f'data.{key}' if path else 'train.init_from')
    return extended
  size = config.vocabulary_sizes[key]
  name = key.replace('_', ' ')
  logging.info(
    'training a %s of %d pieces on up to %d pairs', name, size, VOCABULARY_PAIRS
  )
  sentences = corpora.training_text(VOCABULARY_PAIRS)
  if not config.shared_vocabulary:  # Sources and targets alternate.
    sentences = itertools.islice(
      sentences, 0 if key == 'source_vocabulary' else 1, None, 2
    )
  return Vocabulary.train(sentences, size, f'{key}_size', config)


def _check_settings(vocabulary: Vocabulary, config: DataConfig, key: str, origin: str):
  """Raises `UserError` if settings do not match the vocabulary that the setting `origin` names."""
  spec = vocabulary.proto().trainer_spec
  is_unigram = spec.model_type == TrainerSpec.UNIGRAM
  settings = {
    'vocabulary_kind': config.vocabulary_kind if is_unigram else 'bpe',
    'split_digits': config.split_digits and spec.split_digits,
    'normalization': vocabulary.normalization,
    f'{key}_size': vocabulary.size,
  }
  for name, expected in settings.items():
    value = (
      config.vocabulary_sizes[key] if name == f'{key}_size' else getattr(config, name)
    )
    if value != expected:
      raise UserError(
        f'the vocabulary comes from {origin}; set --config.data.{name}={expected}; got {value}'
      )
