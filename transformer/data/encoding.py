"""Sentence pairs as token ids, held in flat arrays."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from transformer.data.batch import EOS_ID
from transformer.data.vocabulary import Vocabulary

_CHUNK = 10_000


@dataclasses.dataclass(frozen=True)
class Sentences:
  """Token ids of many sentences, end to end: sentence i is `tokens[starts[i]:starts[i + 1]]`."""

  tokens: np.ndarray
  starts: np.ndarray

  @classmethod
  def join(cls, sentences: Iterable[Sequence[int]]) -> 'Sentences':
    """Lays lists of ids end to end."""
    sentences = list(sentences)
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    tokens = np.fromiter((token for ids in sentences for token in ids), np.int32, lengths.sum())
    return cls(tokens, np.concatenate([[0], np.cumsum(lengths)]))

  @classmethod
  def concatenate(cls, parts: Sequence['Sentences']) -> 'Sentences':
    """Joins collections, in order."""
    lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])
    tokens = np.concatenate([np.zeros(0, np.int32), *(part.tokens for part in parts)])
    return cls(tokens, np.concatenate([[0], np.cumsum(lengths)]))

  @property
  def lengths(self) -> np.ndarray:
    """Tokens in each sentence, its end token included."""
    return np.diff(self.starts)

  def __len__(self) -> int:
    return len(self.starts) - 1

  def __getitem__(self, index) -> np.ndarray:
    return self.tokens[self.starts[index]:self.starts[index + 1]]


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
  """A corpus ready to be packed, and what encoding it left out or cut.

  Attributes:
    source: one sentence a pair, each ending with `EOS_ID`.
    target: likewise.
    counts: what happened to how many pairs, in words: `kept`, and a reason each
      for those that were dropped or cut.
  """

  source: Sentences
  target: Sentences
  counts: dict[str, int]

  def __len__(self) -> int:
    return len(self.source)


def encode_for_training(corpus, vocabulary: Vocabulary, max_length: int) -> EncodedPairs:
  """Encodes a corpus and drops the pairs that training cannot use.

  Args:
    corpus: random access to (source, target) sentences.
    vocabulary: the run's vocabulary.
    max_length: the most tokens that either side may have, end token included.

  Returns:
    The pairs that are left, in order, with a count for every reason to drop one:
    an empty side, or a side that is too long.
  """
  sides, counts = [], dict.fromkeys(
      ('kept', 'dropped: empty side', 'dropped: source too long', 'dropped: target too long'), 0)
  for source, target in _encoded_chunks(corpus, vocabulary):
    kept_source, kept_target = [], []
    for source_ids, target_ids in zip(source, target, strict=True):
      if not source_ids or not target_ids:
        counts['dropped: empty side'] += 1
      elif len(source_ids) >= max_length:
        counts['dropped: source too long'] += 1
      elif len(target_ids) >= max_length:
        counts['dropped: target too long'] += 1
      else:
        counts['kept'] += 1
        kept_source.append([*source_ids, EOS_ID])
        kept_target.append([*target_ids, EOS_ID])
    sides.append((Sentences.join(kept_source), Sentences.join(kept_target)))
  return _joined(sides, counts)


def encode_for_scoring(corpus, vocabulary: Vocabulary, max_length: int) -> EncodedPairs:
  """Encodes a corpus and keeps every pair; a side that is too long is cut, and counted.

  Args:
    corpus: random access to (source, target) sentences.
    vocabulary: the run's vocabulary.
    max_length: the most tokens that either side may have, end token included.

  Returns:
    As many pairs as the corpus has, in order.
  """
  sides, counts = [], {'kept': len(corpus), 'cut: source too long': 0, 'cut: target too long': 0}
  for source, target in _encoded_chunks(corpus, vocabulary):
    counts['cut: source too long'] += sum(len(ids) >= max_length for ids in source)
    counts['cut: target too long'] += sum(len(ids) >= max_length for ids in target)
    sides.append(tuple(Sentences.join([*ids[:max_length - 1], EOS_ID] for ids in side)
                       for side in (source, target)))
  return _joined(sides, counts)


def _encoded_chunks(corpus, vocabulary):
  """Yields the two sides of the corpus as lists of id lists, a chunk at a time."""
  for start in range(0, len(corpus), _CHUNK):
    pairs = [corpus[i] for i in range(start, min(start + _CHUNK, len(corpus)))]
    source, target = zip(*pairs, strict=True)
    yield vocabulary.encode_batch(list(source)), vocabulary.encode_batch(list(target))


def _joined(sides, counts):
  source, target = ([pair[side] for pair in sides] for side in (0, 1))
  return EncodedPairs(Sentences.concatenate(source), Sentences.concatenate(target), counts)
