"""Subword regularization: segmentations of training sentences are sampled again every epoch.

  --config.data.augmentations="(('transformer.tools.subwords:bpe_dropout', 0.1),)"

  --config.data.vocabulary_kind=unigram
  --config.data.augmentations="(('transformer.tools.subwords:sample_segmentations', 0.1),)"

The segmentation of a sentence is a function of only the sentence and its key. SentencePiece samples
from the same distributions, but salts its random numbers: the same seed gives other segmentations
in another process, so that processes would disagree about a batch, and a resumed run about the
next one.
"""

import bisect
import functools
import heapq
import itertools
import math
import random
import re
from collections.abc import Callable, Collection

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from transformer.data.batches.augmentation import Augment
from transformer.data.config import DataConfig
from transformer.data.encoding import Sentences
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import BYTE_IDS, SPACE, Vocabulary
from transformer.errors import UserError

# A function of a word and a source of random numbers that returns the pieces of the word.
_Segment = Callable[[str, random.Random], list[str]]
_Piece = ModelProto.SentencePiece
# The number of words whose choices are kept.
_CACHED_WORDS = 2**16
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
  return _sampled(vocabulary, _bpe_segment, rate)


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
  return _sampled(vocabulary, _unigram_segment, alpha)


def _check_kind(vocabulary: RunVocabulary, kind: int, message: str):
  for side in (vocabulary.source, vocabulary.target):
    if side.proto().trainer_spec.model_type != kind:
      raise UserError(message)


def _sampled(
  vocabulary: RunVocabulary,
  make_segment: Callable[[Collection[_Piece], float], _Segment],
  strength: float,
) -> Augment:
  """Returns the augmentation that samples by `make_segment(pieces, strength)`."""
  source_sampler = _Sampler(vocabulary.source, make_segment, strength)
  target_sampler = _Sampler(vocabulary.target, make_segment, strength)

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

  def __init__(self, vocabulary: Vocabulary, make_segment, strength: float):
    pieces = vocabulary.proto().pieces
    self._ids = {}
    for token, piece in enumerate(pieces):
      if piece.type == _Piece.NORMAL:
        self._ids[piece.piece] = token
    self._pieces = {token: piece for piece, token in self._ids.items()}
    self._segment = make_segment(pieces, strength)
    self._words = re.compile(f'{SPACE}[^{SPACE}]*|[^{SPACE}]+')
    if any(SPACE in piece[1:] for piece in self._ids):  # Pieces of several words.
      self._words = re.compile('.+', re.DOTALL)

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
      for word in self._words.findall(text):
        for piece in self._segment(word, rng):
          if piece in self._ids:
            sampled.append(self._ids[piece])
          else:
            sampled += [BYTE_IDS[byte] for byte in piece.encode()]
    return sampled


def _bpe_segment(pieces: Collection[_Piece], rate: float) -> _Segment:
  """Returns the segmentation by merges, the best first, each skipped with probability `rate`."""
  usable = (_Piece.NORMAL, _Piece.UNUSED)
  scores = {piece.piece: piece.score for piece in pieces if piece.type in usable}
  unused = {piece.piece for piece in pieces if piece.type == _Piece.UNUSED}

  def segment(word, rng):
    symbols = list(word)
    previous = list(range(-1, len(symbols) - 1))
    following = list(range(1, len(symbols) + 1))
    merges = []
    halves = {}

    def add(left, right):
      if left < 0 or right == len(symbols):
        return
      pair = symbols[left], symbols[right]
      merged = ''.join(pair)
      if merged in scores:
        heapq.heappush(merges, (-scores[merged], left, right, pair))
      if merged in unused:
        halves[merged] = pair

    for right in range(1, len(symbols)):
      add(right - 1, right)
    while merges:
      _, left, right, pair = heapq.heappop(merges)
      # Another merge may have taken one of the two symbols.
      if (symbols[left], symbols[right]) != pair or rng.random() < rate:
        continue
      symbols[left] = ''.join(pair)
      symbols[right] = ''
      following[left] = following[right]
      if following[left] < len(symbols):
        previous[following[left]] = left
      add(previous[left], left)
      add(left, following[left])
    segmentation = []
    pending = symbols[::-1]
    while pending:
      symbol = pending.pop()
      if symbol in halves:
        pending += halves[symbol][::-1]
      elif symbol:
        segmentation.append(symbol)
    return segmentation

  return segment


def _unigram_segment(pieces: Collection[_Piece], alpha: float) -> _Segment:
  """Returns the segmentation that is sampled from all, from the end of a word to its start."""
  scores = {piece.piece: piece.score for piece in pieces if piece.type == _Piece.NORMAL}
  longest = max(map(len, scores))
  unknown = min(scores.values()) - _UNKNOWN_PENALTY

  @functools.lru_cache(_CACHED_WORDS)
  def choices(word):
    """Returns for each position the starts of pieces that end there, and cumulative weights."""
    # The logarithm of the sum over all segmentations of the word up to each position.
    sums = [0.0]
    found = [([], [])]
    for end in range(1, len(word) + 1):
      starts = []
      terms = []
      for start in range(max(0, end - longest), end):
        score = scores.get(word[start:end], unknown if start == end - 1 else None)
        if score is not None:
          starts.append(start)
          terms.append(sums[start] + alpha * score)
      peak = max(terms)
      weights = [math.exp(term - peak) for term in terms]
      sums.append(peak + math.log(sum(weights)))
      found.append((starts, list(itertools.accumulate(weights))))
    return found

  def segment(word, rng):
    by_end = choices(word)
    segmentation = []
    end = len(word)
    while end:
      starts, weights = by_end[end]
      start = starts[bisect.bisect(weights[:-1], rng.random() * weights[-1])]
      segmentation.append(word[start:end])
      end = start
    return segmentation[::-1]

  return segment
