"""Sentence pairs as token ids in flat arrays."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from transformer.data.batch import EOS_ID
from transformer.data.text.sources import Corpus
from transformer.data.text.text_files import is_blank
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary

_CHUNK = 20_000  # pairs per chunk


@dataclasses.dataclass(frozen=True)
class Sentences:
  """Token ids of many sentences: sentence i is `tokens[starts[i]:starts[i] + lengths[i]]`.

  Attributes:
    tokens: `[tokens]` uint16 or int32.
    starts: `[sentences]` int64.
    lengths: `[sentences]` int32; the length of an encoded sentence includes EOS.
  """

  tokens: np.ndarray
  starts: np.ndarray
  lengths: np.ndarray

  @classmethod
  def from_lengths(cls, tokens: np.ndarray, lengths: np.ndarray) -> 'Sentences':
    """Wraps sentences that are stored in `tokens` in order, without gaps."""
    starts = np.cumsum(lengths, dtype=np.int64)
    starts -= lengths
    return cls(tokens, starts, lengths)

  @classmethod
  def from_lists(cls, sentences: Iterable, dtype=np.int32) -> 'Sentences':
    """Concatenates lists of ids."""
    sentences = list(sentences)
    tokens = np.fromiter(itertools.chain.from_iterable(sentences), dtype)
    return cls.from_lengths(tokens, np.fromiter(map(len, sentences), np.int32))

  @classmethod
  def from_lists_with_eos(cls, sentences: Iterable, dtype=np.int32) -> 'Sentences':
    """Concatenates lists of ids, with EOS after each."""
    return cls.from_lists(([*ids, EOS_ID] for ids in sentences), dtype)

  @classmethod
  def concatenate(cls, parts: Sequence['Sentences']) -> 'Sentences':
    """Concatenates collections whose sentences are stored in order, without gaps."""
    tokens = np.concatenate([part.tokens for part in parts])
    return cls.from_lengths(tokens, np.concatenate([part.lengths for part in parts]))

  def __len__(self) -> int:
    return len(self.lengths)

  def __getitem__(self, index) -> np.ndarray:
    start = self.starts[index]
    return self.tokens[start : start + self.lengths[index]]

  def select(self, sentences: np.ndarray) -> 'Sentences':
    """Returns some sentences, given by index or mask; their tokens are not copied."""
    return Sentences(self.tokens, self.starts[sentences], self.lengths[sentences])

  def gather(self, sentences: np.ndarray) -> 'Sentences':
    """Returns some sentences, with their tokens copied in order, without gaps."""
    lengths = self.lengths[sentences]
    places = np.repeat(self.starts[sentences], lengths) + concatenated_ranges(lengths)
    return Sentences.from_lengths(self.tokens[places], lengths)


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
  """Both sides of pairs, with EOS, and the number of pairs kept, dropped and truncated."""

  source: Sentences
  target: Sentences
  counts: dict[str, int]

  def __len__(self) -> int:
    return len(self.source)


def encode(corpus: Corpus, vocabulary: RunVocabulary) -> Iterator[tuple]:
  """Yields chunks (source, target) of a corpus, encoded with EOS, on all cores."""
  dtype = token_dtype(vocabulary)
  for first in range(0, len(corpus), _CHUNK):
    sources, targets = zip(*corpus[first : first + _CHUNK], strict=True)
    yield (
      encode_lines(sources, vocabulary.source, dtype),
      encode_lines(targets, vocabulary.target, dtype),
    )


def encode_lines(
  lines: Sequence[str], vocabulary: Vocabulary, dtype: np.dtype
) -> Sentences:
  """Returns lines encoded with EOS, on all cores; a blank line is only EOS."""
  texts = ['' if is_blank(line) else line for line in lines]
  return Sentences.from_lists_with_eos(vocabulary.encode_batch(texts), dtype)


def encode_in_memory(corpus: Corpus, vocabulary: RunVocabulary) -> list[Sentences]:
  """Returns both sides of a whole corpus, encoded as by `encode`."""
  return list(map(Sentences.concatenate, zip(*encode(corpus, vocabulary), strict=True)))


def token_dtype(vocabulary: RunVocabulary) -> np.dtype:
  """Returns the smallest dtype for the ids of both sides."""
  size = max(vocabulary.source.size, vocabulary.target.size)
  return np.dtype(np.uint16 if size <= 1 << 16 else np.int32)


def filter_for_training(
  source: Sentences, target: Sentences, max_length: int, max_length_ratio: float = 0.0
) -> EncodedPairs:
  """Drops pairs with an empty side, a long side or a large length ratio; counts one reason each."""
  drop_masks = {
    'empty side': (source.lengths <= 1) | (target.lengths <= 1),
    'source too long': source.lengths > max_length,
    'target too long': target.lengths > max_length,
  }
  if max_length_ratio:
    drop_masks['length ratio'] = exceed_length_ratio(
      source.lengths, target.lengths, max_length_ratio
    )
  counts = {'kept': 0}
  kept = np.ones(len(source), bool)
  for reason, pairs in drop_masks.items():
    counts[f'dropped: {reason}'] = int(np.count_nonzero(kept & pairs))
    kept &= ~pairs
  counts['kept'] = int(np.count_nonzero(kept))
  return EncodedPairs(source.select(kept), target.select(kept), counts)


def exceed_length_ratio(
  source: np.ndarray, target: np.ndarray, max_ratio: float
) -> np.ndarray:
  """Returns for each pair whether one length is more than `max_ratio` times the other."""
  return np.maximum(source, target) > max_ratio * np.minimum(source, target)


def encode_for_validation(
  corpus: Corpus, vocabulary: RunVocabulary, max_length: int
) -> EncodedPairs:
  """Encodes a corpus, keeping every pair; truncates and counts sides above `max_length` tokens."""
  source, target = encode_in_memory(corpus, vocabulary)
  counts = {
    'kept': len(corpus),
    'truncated: source too long': int(np.count_nonzero(source.lengths > max_length)),
    'truncated: target too long': int(np.count_nonzero(target.lengths > max_length)),
  }
  return EncodedPairs(
    _truncated(source, max_length), _truncated(target, max_length), counts
  )


def _truncated(sentences: Sentences, max_length: int) -> Sentences:
  return Sentences.from_lists_with_eos(ids[:-1][: max_length - 1] for ids in sentences)


def concatenated_ranges(sizes: np.ndarray) -> np.ndarray:
  """Returns 0 … size − 1 for each of `sizes`, concatenated."""
  firsts = np.cumsum(sizes) - sizes
  return np.arange(np.sum(sizes)) - np.repeat(firsts, sizes)
