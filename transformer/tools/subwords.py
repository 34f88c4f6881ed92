"""Subword regularization: SentencePiece samples segmentations of training sentences every epoch.

  --config.data.augmentations="(('transformer.tools.subwords:bpe_dropout', 0.1),)"

  --config.data.vocabulary_kind=unigram
  --config.data.augmentations="(('transformer.tools.subwords:sample_segmentations', 0.1),)"

The segmentation of a sentence is a function of only the sentence and its key.
"""

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import TrainerSpec

from transformer.data.batches.augmentation import Augment
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import ESCAPED, Vocabulary
from transformer.errors import UserError

_ESCAPES = str.maketrans(ESCAPED)


def bpe_dropout(_: DataConfig, vocabulary: RunVocabulary, rate: float) -> Augment:
  """Returns the BPE-dropout augmentation of both sides (Provilkov et al., 2020, section 3.1).

  Each merge in a sentence is skipped with probability `rate`. Raises `UserError` if the vocabulary
  has no merges.
  """
  if not 0 < rate <= 1:
    raise UserError(
      f'the rate of BPE-dropout, the probability that a merge is skipped, must be above 0 and '
      f'at most 1; got {rate}'
    )
  _check_kind(
    vocabulary,
    TrainerSpec.BPE,
    'BPE-dropout requires BPE merges, which only a vocabulary of the kind bpe has; for the kind '
    'unigram, use transformer.tools.subwords:sample_segmentations',
  )
  return _sampled(vocabulary, rate)


def sample_segmentations(
  _: DataConfig, vocabulary: RunVocabulary, alpha: float
) -> Augment:
  """Returns an augmentation of both sides (Kudo, 2018, "Subword Regularization", section 3.3).

  The segmentation of a sentence is sampled from all its segmentations, with probabilities
  proportional to their probabilities to the power of `alpha`. Raises `UserError` if the vocabulary
  has no probabilities.
  """
  if not 0 < alpha <= 1:
    raise UserError(
      'alpha, the exponent of the probabilities of segmentations, must be above 0 and at most '
      f'1; got {alpha}'
    )
  _check_kind(
    vocabulary,
    TrainerSpec.UNIGRAM,
    'transformer.tools.subwords:sample_segmentations requires a vocabulary of the kind '
    'unigram; for the kind bpe, use transformer.tools.subwords:bpe_dropout',
  )
  return _sampled(vocabulary, alpha)


def _check_kind(vocabulary: RunVocabulary, kind: int, message: str):
  for side in (vocabulary.source, vocabulary.target):
    if side.proto().trainer_spec.model_type != kind:
      raise UserError(message)


def _sampled(vocabulary: RunVocabulary, alpha: float) -> Augment:
  """Returns the augmentation that samples segmentations; `alpha` as in SentencePiece."""
  source_sampler = _Sampler(vocabulary.source, alpha)
  target_sampler = _Sampler(vocabulary.target, alpha)

  def augment(
    source: Sentences, target: Sentences, keys: np.ndarray
  ) -> tuple[Sentences, Sentences]:
    return (
      source_sampler.segment_all(source, keys[0]),
      target_sampler.segment_all(target, keys[1]),
    )

  return augment


class _Sampler:
  """Samples segmentations of the sentences of one language."""

  def __init__(self, vocabulary: Vocabulary, alpha: float):
    self._vocabulary = vocabulary
    self._symbols = set(vocabulary.user_defined_symbols.values())
    self._processor = sentencepiece.SentencePieceProcessor(
      model_proto=vocabulary.model_bytes,
      enable_sampling=True,
      alpha=alpha,
      nbest_size=-1,
    )

  def segment_all(self, sentences: Sentences, keys: np.ndarray) -> Sentences:
    """Returns the sentences in sampled segmentations, each by its key."""
    segmentations = (
      self.segment(sentences[index], int(key) % 2**32) for index, key in enumerate(keys)
    )
    return Sentences.from_lists_with_eos(segmentations)

  def segment(self, ids: np.ndarray, seed: int) -> list[int]:
    """Returns a sampled segmentation without EOS; the original if sampling would split a symbol."""
    text = self._vocabulary.decode(ids).translate(_ESCAPES)
    sentencepiece.set_random_generator_seed(seed)
    sampled = self._processor.encode(text)
    plain = ids[:-1].tolist()
    return sampled if self._symbols_of(sampled) == self._symbols_of(plain) else plain

  def _symbols_of(self, ids: list[int]) -> list[int]:
    """Returns the user-defined symbols among `ids`, in order."""
    return [token for token in ids if token in self._symbols]
