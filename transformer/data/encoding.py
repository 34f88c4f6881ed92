"""Sentence pairs as token ids, held in flat arrays."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from transformer.data.batch import EOS_ID
from transformer.data.vocabulary import Vocabulary

_CHUNK = 20_000


@dataclasses.dataclass(frozen=True)
class Sentences:
  """Token ids of many sentences: sentence i is `lengths[i]` of `tokens`, from `starts[i]` on.

  Attributes:
    tokens: `[tokens]` uint16 or int32.
    starts: `[sentences]` int64.
    lengths: `[sentences]` int32; of an encoded sentence, its end token included.
  """

  tokens: np.ndarray
  starts: np.ndarray
  lengths: np.ndarray

  @classmethod
  def end_to_end(cls, tokens: np.ndarray, lengths: np.ndarray) -> 'Sentences':
    """Takes sentences that lie in `tokens` one after the other, with nothing between them."""
    starts = np.cumsum(lengths, dtype=np.int64)
    starts -= lengths
    return cls(tokens, starts, lengths)

  @classmethod
  def join(cls, sentences: Iterable[Sequence[int]], dtype=np.int32) -> 'Sentences':
    """Lays lists of ids end to end."""
    sentences = list(sentences)
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
    return cls.end_to_end(np.fromiter(itertools.chain.from_iterable(sentences), dtype), lengths)

  @classmethod
  def concatenate(cls, parts: Sequence['Sentences']) -> 'Sentences':
    """Joins collections that lie end to end, in order."""
    return cls.end_to_end(*(np.concatenate([np.zeros(0, dtype), *arrays]) for dtype, arrays in (
        (parts[0].tokens.dtype if parts else np.int32, (part.tokens for part in parts)),
        (np.int32, (part.lengths for part in parts)))))

  def __len__(self) -> int:
    return len(self.lengths)

  def __getitem__(self, index) -> np.ndarray:
    return self.take(np.array([index]))

  def take(self, sentences: np.ndarray) -> np.ndarray:
    """The tokens of some sentences, end to end."""
    lengths = self.lengths[sentences]
    return self.tokens[np.repeat(self.starts[sentences], lengths) + count_from_zero(lengths)]


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
  """A corpus ready to be packed, and what was left out or cut of it.

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


def encode(corpus, vocabulary: Vocabulary) -> Iterator[tuple[Sentences, Sentences]]:
  """Encodes a corpus, all of it, on all cores, a chunk at a time.

  Args:
    corpus: (source, target) sentences, which it gives by slices.
    vocabulary: the run's vocabulary.

  Yields:
    The two sides of the next pairs, each sentence with its end token; tokens are
    uint16 if the vocabulary's size allows.
  """
  dtype = token_dtype(vocabulary)
  for chunk in _chunks(corpus):
    yield tuple(_ended(vocabulary.encode_batch(list(side)), dtype)
                for side in zip(*chunk, strict=True))


def token_dtype(vocabulary: Vocabulary) -> np.dtype:
  """The type that holds a vocabulary's ids in the least space."""
  return np.dtype(np.uint16 if vocabulary.size <= 1 << 16 else np.int32)


def keep_for_training(source: Sentences, target: Sentences, max_length: int) -> EncodedPairs:
  """Drops the pairs that training cannot use.

  Args:
    source: one sentence a pair, each with its end token.
    target: likewise.
    max_length: the most tokens that either side may have, end token included.

  Returns:
    The pairs that are left, in order, with a count for every reason to drop one:
    an empty side, or a side that is too long.
  """
  empty = (source.lengths <= 1) | (target.lengths <= 1)
  source_long = ~empty & (source.lengths > max_length)
  target_long = ~empty & ~source_long & (target.lengths > max_length)
  kept = ~(empty | source_long | target_long)
  counts = {'kept': kept, 'dropped: empty side': empty,
            'dropped: source too long': source_long, 'dropped: target too long': target_long}
  counts = {what: int(np.count_nonzero(which)) for what, which in counts.items()}
  if not kept.all():
    source, target = (
        dataclasses.replace(side, starts=side.starts[kept], lengths=side.lengths[kept])
        for side in (source, target))
  return EncodedPairs(source, target, counts)


def encode_for_training(corpus, vocabulary: Vocabulary, max_length: int) -> EncodedPairs:
  """Encodes a corpus in memory and drops the pairs that training cannot use.

  Args:
    corpus: (source, target) sentences, which it gives by slices.
    vocabulary: the run's vocabulary.
    max_length: the most tokens that either side may have, end token included.

  Returns:
    See `keep_for_training`.
  """
  return keep_for_training(*_in_memory(corpus, vocabulary), max_length)


def encode_for_scoring(corpus, vocabulary: Vocabulary, max_length: int) -> EncodedPairs:
  """Encodes a corpus and keeps every pair; a side that is too long is cut, and counted.

  Args:
    corpus: (source, target) sentences, which it gives by slices.
    vocabulary: the run's vocabulary.
    max_length: the most tokens that either side may have, end token included.

  Returns:
    As many pairs as the corpus has, in order.
  """
  sides, counts = [], {'kept': len(corpus)}
  for name, whole in zip(('source', 'target'), _in_memory(corpus, vocabulary), strict=True):
    too_long = whole.lengths > max_length
    counts[f'cut: {name} too long'] = int(np.count_nonzero(too_long))
    sides.append(Sentences.join([*whole[i][:-1][:max_length - 1], EOS_ID]
                                for i in range(len(whole))))
  return EncodedPairs(*sides, counts)


def count_from_zero(sizes: np.ndarray) -> np.ndarray:
  """0 … size − 1 for each of `sizes`, end to end."""
  ends = np.cumsum(sizes, dtype=np.int64)
  return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)


def _in_memory(corpus, vocabulary) -> list[Sentences]:
  """The two sides of a corpus, encoded whole."""
  chunks = list(encode(corpus, vocabulary))
  return [Sentences.concatenate([chunk[side] for chunk in chunks]) for side in (0, 1)]


def _chunks(corpus) -> Iterator[list[tuple[str, str]]]:
  """The corpus in lists of pairs; the next is read while the last is being encoded."""
  def read(start):
    return corpus[start:start + _CHUNK]

  with ThreadPoolExecutor(1) as reader:
    following = reader.submit(read, 0)
    for start in range(0, len(corpus), _CHUNK):
      chunk = following.result()
      following = reader.submit(read, start + _CHUNK)
      yield chunk


def _ended(sentences: Sequence[Sequence[int]], dtype) -> Sentences:
  """Lays lists of ids end to end, with an end token after each."""
  joined = Sentences.join(sentences, dtype)
  ends = joined.starts + joined.lengths
  return Sentences.end_to_end(np.insert(joined.tokens, ends, EOS_ID), joined.lengths + np.int32(1))
