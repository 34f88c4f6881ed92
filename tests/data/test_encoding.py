"""Encoding counts the pairs that it drops, and keeps the others in order, with EOS."""

import collections
import dataclasses

import chex
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data import encoding
from transformer.data.batch import EOS_ID
from transformer.data.encoding import (
  Sentences,
  encode_for_validation,
  encode_in_memory,
  filter_for_training,
)
from transformer.data.vocabulary.vocabularies import SeparateVocabularies

MAX_LENGTH = 7


class Spelling:
  """A vocabulary of numbers: the sentence `5 9` has the ids 5 and 9."""

  size = 1 << 16
  source = target = property(lambda self: self)

  def encode_batch(self, sentences):
    return [[int(word) for word in sentence.split()] for sentence in sentences]


def encode_for_training(corpus, vocabulary, *limits):
  return filter_for_training(*encode_in_memory(corpus, vocabulary), *limits)


def sentence(length, first=11):
  return ' '.join(str(first + i) for i in range(length))


def pairs_of(*lengths):
  """Returns pairs of the given lengths, no two with the same ids."""
  return [
    (sentence(source, 1000 * (i + 1)), sentence(target, 1000 * (i + 1) + 500))
    for i, (source, target) in enumerate(lengths)
  ]


def ids(text):
  return [int(word) for word in text.split()]


SHAPES = st.lists(
  st.tuples(st.integers(0, 2 * MAX_LENGTH), st.integers(0, 2 * MAX_LENGTH)),
  min_size=1,
  max_size=20,
)


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_for_scoring_no_pair_is_dropped_and_truncations_are_counted(lengths):
  corpus = pairs_of(*lengths)
  encoded = encode_for_validation(corpus, Spelling(), MAX_LENGTH)
  assert (
    len(encoded.source) == len(encoded.target) == encoded.counts['kept'] == len(corpus)
  )
  assert encoded.counts == {
    'kept': len(corpus),
    'truncated: source too long': sum(source >= MAX_LENGTH for source, _ in lengths),
    'truncated: target too long': sum(target >= MAX_LENGTH for _, target in lengths),
  }
  for i, pair in enumerate(corpus):
    for side, text in zip((encoded.source, encoded.target), pair, strict=True):
      assert side[i].tolist() == [*ids(text)[: MAX_LENGTH - 1], EOS_ID]
      assert len(side[i]) <= MAX_LENGTH


FEW = st.lists(
  st.tuples(*[st.lists(st.integers(5, 6), max_size=5)] * 2), min_size=1, max_size=30
)


@given(FEW, st.sampled_from([0.0, 1.0, 1.5, 2.0]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_each_limit_drops_and_counts_its_pairs_once(pairs, ratio):
  corpus = [tuple(' '.join(map(str, side)) for side in pair) for pair in pairs]
  encoded = encode_for_training(corpus, Spelling(), 5, ratio)
  kept, counts = [], collections.Counter()
  for source, target in pairs:
    long, short = max(len(source), len(target)) + 1, min(len(source), len(target)) + 1
    if not source or not target:
      counts['dropped: empty side'] += 1
    elif len(source) >= 5:
      counts['dropped: source too long'] += 1
    elif len(target) >= 5:
      counts['dropped: target too long'] += 1
    elif ratio and long / short > ratio:
      counts['dropped: length ratio'] += 1
    else:
      kept.append((source, target))
  assert [
    (encoded.source[i].tolist()[:-1], encoded.target[i].tolist()[:-1])
    for i in range(len(encoded))
  ] == kept
  assert {
    what: number for what, number in encoded.counts.items() if number
  } == +counts | ({'kept': len(kept)} if kept else {})


@pytest.mark.parametrize('encode', [encode_for_training, encode_for_validation])
def test_chunks_change_nothing(monkeypatch, encode):
  corpus = pairs_of(*((i % 9, (i * 5) % 11) for i in range(29)))
  whole = encode(corpus, Spelling(), MAX_LENGTH)
  for chunk in (1, 3, 29):
    monkeypatch.setattr(encoding, '_CHUNK', chunk)
    parts = encode(corpus, Spelling(), MAX_LENGTH)
    assert parts.counts == whole.counts
    for side in ('source', 'target'):
      chex.assert_trees_all_equal(
        dataclasses.asdict(getattr(parts, side)),
        dataclasses.asdict(getattr(whole, side)),
      )


@given(
  st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=7),
  st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=7),
)
@settings(max_examples=20, deadline=None)
def test_sentences_round_trip_through_the_flat_array(first, second):
  joined = Sentences.from_lists(first)
  both = Sentences.concatenate([joined, Sentences.from_lists(second)])
  chex.assert_type([joined.tokens, both.tokens], np.int32)
  assert [both[i].tolist() for i in range(len(both))] == first + second
  assert both.lengths.tolist() == [len(tokens) for tokens in first + second]
  assert len(joined) == len(first)


@pytest.mark.parametrize(('size', 'bits'), [(1 << 16, 16), ((1 << 16) + 1, 32)])
def test_every_id_of_a_vocabulary_fits(size, bits):
  vocabulary = Spelling()
  vocabulary.size = size
  pairs = encode_for_training([(str(size - 1), '9')], vocabulary, MAX_LENGTH)
  assert pairs.source.tokens.tolist() == [size - 1, EOS_ID]
  assert pairs.source.tokens.dtype.itemsize == bits // 8
  # Either the source vocabulary or the target vocabulary may be larger.
  small = Spelling()
  small.size = 10
  for sides in ((vocabulary, small), (small, vocabulary)):
    texts = [str(side.size - 1) for side in sides]
    pairs = encode_for_training([texts], SeparateVocabularies(*sides), MAX_LENGTH)
    assert [pairs.source[0][0], pairs.target[0][0]] == list(map(int, texts))
