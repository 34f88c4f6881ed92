"""Sentence pairs as token ids, held in flat arrays."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from transformer.data.batch import EOS_ID
from transformer.data.repeats import keys_of_pairs, repeats
from transformer.data.shuffling import mix
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


def keep_for_training(source: Sentences, target: Sentences, max_length: int, *,
                      max_length_ratio: float = 0.0, drop_identical: bool = False,
                      drop_duplicates: bool = False) -> EncodedPairs:
  """Drops the pairs that training cannot use, and those that it is told to drop.

  Args:
    source: one sentence a pair, each with its end token.
    target: likewise.
    max_length: the most tokens that either side may have, end token included.
    max_length_ratio: how many times as many tokens as the other a side may have, end
      tokens included; 0 is any.
    drop_identical: leave out the pairs whose sides are the same.
    drop_duplicates: of equal pairs, keep the first. These two read tokens, and the
      others lengths alone.

  Returns:
    The pairs that are left, in order, with a count for every reason to drop one: an
    empty side, a side that is too long, and each of the others that is asked for. A
    pair is counted for the first of its reasons.
  """
  counts = {'kept': 0}
  kept = np.ones(len(source), bool)

  def drop(reason, which):
    counts[f'dropped: {reason}'] = int(np.count_nonzero(kept & which))
    np.logical_and(kept, ~which, out=kept)

  drop('empty side', (source.lengths <= 1) | (target.lengths <= 1))
  drop('source too long', source.lengths > max_length)
  drop('target too long', target.lengths > max_length)
  if max_length_ratio:
    drop('length ratio', differ_in_length(source.lengths, target.lengths, max_length_ratio))
  if drop_identical:
    same_length = np.flatnonzero(kept & (source.lengths == target.lengths))
    drop('source equals target', _among(len(kept), same_length[_keys(source, same_length)
                                                               == _keys(target, same_length)]))
  if drop_duplicates:
    left = np.flatnonzero(kept)
    keys = keys_of_pairs(_keys(source, left), _keys(target, left))
    drop('repeated pair', _among(len(kept), left[repeats(keys)]))
  counts['kept'] = int(np.count_nonzero(kept))
  if not kept.all():
    source, target = (
        dataclasses.replace(side, starts=side.starts[kept], lengths=side.lengths[kept])
        for side in (source, target))
  return EncodedPairs(source, target, counts)


def differ_in_length(source: np.ndarray, target: np.ndarray, most: float) -> np.ndarray:
  """Which pairs of lengths have one that is more than `most` times the other, boolean."""
  return np.maximum(source, target) > most * np.minimum(source, target)


def encode_for_training(corpus, vocabulary: Vocabulary, max_length: int, **limits) -> EncodedPairs:
  """Encodes a corpus in memory and drops the pairs that training cannot use.

  Args:
    corpus: (source, target) sentences, which it gives by slices.
    vocabulary: the run's vocabulary.
    max_length: the most tokens that either side may have, end token included.
    **limits: the others of `keep_for_training`.

  Returns:
    See `keep_for_training`.
  """
  return keep_for_training(*_in_memory(corpus, vocabulary), max_length, **limits)


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


def _keys(side: Sentences, sentences: np.ndarray) -> np.ndarray:
  """A 64-bit key of the tokens of each of some sentences, read a chunk at a time."""
  keys = np.zeros(len(sentences), np.uint64)
  for first in range(0, len(sentences), _CHUNK):
    chunk = sentences[first:first + _CHUNK]
    lengths = side.lengths[chunk]
    places = count_from_zero(lengths).astype(np.uint64) << np.uint64(32)
    tokens = mix(side.take(chunk).astype(np.uint64) + places)
    # No sentence is empty: each has its end token.
    keys[first:first + _CHUNK] = mix(np.add.reduceat(tokens, np.cumsum(lengths) - lengths))
  return keys


def _among(size: int, places: np.ndarray) -> np.ndarray:
  """Boolean [size], True at `places`."""
  which = np.zeros(size, bool)
  which[places] = True
  return which


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
