"""Subword regularization: segmentations of training sentences are sampled again every epoch.

  --config.data.augmentations="(('transformer.tools.subwords:bpe_dropout', 0.1),)"

  --config.data.vocabulary_kind=unigram
  --config.data.augmentations="(('transformer.tools.subwords:sample_segmentations', 0.1),)"

The segmentation of a sentence is a function of only the sentence and its key. SentencePiece samples
from the same distributions, but salts its random numbers: the same seed gives other segmentations
in another process, so that processes would disagree about a batch, and a resumed run about the
next one.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Mapping

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.data.batches.augmentation import Augment
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import BYTE_IDS, Vocabulary
from transformer.errors import UserError

# A function of a text and a source of random numbers that returns the pieces of the text.
_Segment = Callable[[str, random.Random], list[str]]
_NORMAL = ModelProto.SentencePiece.NORMAL
# SentencePiece's penalty of a character that is no piece, below the lowest score of a piece.
_UNKNOWN_PENALTY = 10.0


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
  return _sampled(vocabulary, _bpe, rate)


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
  return _sampled(vocabulary, _unigram, alpha)


def _check_kind(vocabulary: RunVocabulary, kind: int, message: str):
  for side in (vocabulary.source, vocabulary.target):
    if side.proto().trainer_spec.model_type != kind:
      raise UserError(message)


def _sampled(
  vocabulary: RunVocabulary,
  make: Callable[[Mapping[str, float], float], _Segment],
  number: float,
) -> Augment:
  """Returns the augmentation that samples by `make(scores of pieces, number)`."""
  source_sampler = _Sampler(vocabulary.source, make, number)
  target_sampler = _Sampler(vocabulary.target, make, number)

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

  def __init__(self, vocabulary: Vocabulary, make, number: float):
    self._ids = {}
    scores = {}
    for token, piece in enumerate(vocabulary.proto().pieces):
      if piece.type == _NORMAL:
        self._ids[piece.piece] = token
        scores[piece.piece] = piece.score
    self._pieces = {token: piece for piece, token in self._ids.items()}
    self._segment = make(scores, number)

  def segment_all(self, sentences: Sentences, keys: np.ndarray) -> Sentences:
    """Returns the sentences in sampled segmentations, each by its key."""
    return Sentences.from_lists_with_eos(
      self.segment(sentences[index][:-1].tolist(), random.Random(int(key)))
      for index, key in enumerate(keys)
    )

  def segment(self, ids: list[int], rng: random.Random) -> list[int]:
    """Returns a sampled segmentation; bytes and user-defined symbols stay as they are."""
    sampled = []
    for is_text, run in itertools.groupby(ids, self._pieces.__contains__):
      if not is_text:
        sampled += run
        continue
      text = ''.join(map(self._pieces.__getitem__, run))
      for piece in self._segment(text, rng):
        if piece in self._ids:
          sampled.append(self._ids[piece])
        else:
          sampled += [BYTE_IDS[byte] for byte in piece.encode()]
    return sampled


def _bpe(scores: Mapping[str, float], rate: float) -> _Segment:
  """Returns the segmentation by merges, the best first, each skipped with probability `rate`."""

  def segment(text, rng):
    symbols = list(text)
    previous = list(range(-1, len(symbols) - 1))
    following = list(range(1, len(symbols) + 1))
    merges = []

    def add(left, right):
      if left < 0 or right == len(symbols):
        return
      merged = symbols[left] + symbols[right]
      if merged in scores:
        heapq.heappush(merges, (-scores[merged], left, right, merged))

    for right in range(1, len(symbols)):
      add(right - 1, right)
    while merges:
      _, left, right, merged = heapq.heappop(merges)
      symbol_pair = symbols[left], symbols[right]
      # Another merge may have taken one of the two symbols.
      if '' in symbol_pair or ''.join(symbol_pair) != merged or rng.random() < rate:
        continue
      symbols[left] = merged
      symbols[right] = ''
      following[left] = following[right]
      if following[left] < len(symbols):
        previous[following[left]] = left
      add(previous[left], left)
      add(left, following[left])
    return list(filter(None, symbols))

  return segment


def _unigram(scores: Mapping[str, float], alpha: float) -> _Segment:
  """Returns the segmentation that is sampled from all, from the end of the text to its start."""
  longest = max(map(len, scores))
  unknown = min(scores.values()) - _UNKNOWN_PENALTY

  def segment(text, rng):
    # The logarithm of the sum over all segmentations of the text up to each position.
    sums = [0.0]
    # For each position, the starts of the pieces that end there, and their shares of the sum.
    choices = [([], [])]
    for end in range(1, len(text) + 1):
      starts = []
      terms = []
      for start in range(max(0, end - longest), end):
        score = scores.get(text[start:end], unknown if start == end - 1 else None)
        if score is not None:
          starts.append(start)
          terms.append(sums[start] + alpha * score)
      peak = max(terms)
      shares = [math.exp(term - peak) for term in terms]
      sums.append(peak + math.log(sum(shares)))
      choices.append((starts, shares))
    pieces = []
    end = len(text)
    while end:
      (start,) = rng.choices(*choices[end])
      pieces.append(text[start:end])
      end = start
    return pieces[::-1]

  return segment
