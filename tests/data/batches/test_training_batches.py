"""The batch of step n is a function of (data, seed, n), and an epoch has every pair."""

import collections
import itertools
import threading
import time

import chex
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batch import EOS_ID
from transformer.data.batches.packing import Packing
from transformer.data.batches.training_batches import (
  BatchesByStep,
  BatchShape,
  TrainingBatches,
  batch_shape,
  validation_batches,
)
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.errors import UserError

SHAPE = BatchShape(rows=3, source_length=29, target_length=23)


def make_pairs(count, first=0, longest=SHAPE.target_length, seed=0) -> EncodedPairs:
  """Returns pairs of random lengths, each with its own word on both sides."""
  rng = np.random.default_rng(seed)

  def side(word):
    lengths = rng.integers(2, longest + 1, count)
    return Sentences.from_lists(
      [
        [word + first + i, *rng.integers(5, 97, length - 2), EOS_ID]
        for i, length in enumerate(lengths)
      ]
    )

  return EncodedPairs(side(1_000), side(500_000), {'kept': count})


def pairs_in(corpus: EncodedPairs):
  """Returns the pairs of a corpus as two tuples of ids, with counts."""
  return collections.Counter(
    (tuple(corpus.source[i].tolist()), tuple(corpus.target[i].tolist()))
    for i in range(len(corpus))
  )


def sentences_in(tokens, segments, positions):
  """Returns the sentences of one side of a row; checks segments and positions."""
  sizes = np.bincount(segments)[1:] if segments.any() else np.zeros(0, int)
  real = sizes.sum()
  assert (sizes > 0).all()
  np.testing.assert_array_equal(
    segments[:real], np.repeat(np.arange(len(sizes)) + 1, sizes)
  )
  np.testing.assert_array_equal(
    positions[:real], np.concatenate([np.zeros(0, int), *map(np.arange, sizes)])
  )
  assert (
    not tokens[real:].any() and not segments[real:].any() and not positions[real:].any()
  )
  return [
    tuple(sentence.tolist())
    for sentence in np.split(tokens[:real], np.cumsum(sizes)[:-1])
    if len(sentence)
  ]


def recover(batches):
  """Returns the pairs of batches, with counts."""
  pairs = collections.Counter()
  for batch in batches:
    for row in zip(*batch[:6], strict=True):
      source, target = sentences_in(*row[:3]), sentences_in(*row[3:])
      assert len(source) == len(target)
      pairs.update(zip(source, target, strict=True))
  return pairs


def training(corpora, weights=None, seed=7) -> TrainingBatches:
  return TrainingBatches(corpora, weights or [1.0] * len(corpora), SHAPE, seed)


def epoch(batches, number):
  size = batches.batches_in_epoch
  return [batches[step] for step in range(number * size, (number + 1) * size)]


def rows_used(batches):
  return [int(batch.target_segments.any(axis=1).sum()) for batch in batches]


def same(one, other) -> bool:
  return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


CORPUS = make_pairs(61)
OTHER = make_pairs(41, first=10_000, seed=1)


@pytest.mark.parametrize('weights', [[1.0, 1.0], [1.0, 0.3]])
def test_batches_do_not_depend_on_the_order_of_requests(weights):
  whole = list(training([CORPUS, OTHER], weights).iterate(0, 60))
  assert len(whole) == 60
  one = training([CORPUS, OTHER], weights)
  late = one[1009]
  for step in np.random.default_rng(3).permutation(60):
    assert same(one[int(step)], whole[step]), step
  assert same(one[1009], late) and same(training([CORPUS, OTHER], weights)[1009], late)
  for start, stop in ((13, 14), (31, 60), (5, 5)):
    part = list(training([CORPUS, OTHER], weights).iterate(start, stop))
    assert len(part) == stop - start
    chex.assert_trees_all_equal(part, whole[start:stop])


class Steps(BatchesByStep):
  """Numbers for batches, and the steps that were asked for."""

  def __init__(self):
    self.done, self.threads = [], set()

  def __getitem__(self, step):
    self.threads.add(threading.get_ident())
    self.done.append(step)
    return 10 // (step - 30)


def test_one_thread_works_a_bounded_number_ahead_until_the_generator_is_closed():
  steps = Steps()
  results = steps.iterate(0, 20)
  assert steps.done == []  # Nothing starts before the first result is wanted.
  for wanted in range(5):
    assert next(results) == 10 // (wanted - 30)
    deadline = time.monotonic() + 20
    while len(steps.done) < wanted + 9 and time.monotonic() < deadline:
      time.sleep(0.001)
    assert steps.done == list(range(wanted + 9))
  results.close()
  assert len(steps.done) == 13
  assert len(steps.threads) == 1 and threading.get_ident() not in steps.threads


def test_an_exception_comes_in_its_place():
  results = Steps().iterate(29, 33)
  assert next(results) == -10
  with pytest.raises(ZeroDivisionError):
    next(results)
  assert list(results) == []


def test_another_seed_returns_other_batches():
  one, other = training([CORPUS], seed=7), training([CORPUS], seed=8)
  assert not any(
    same(a, b) for a, b in zip(epoch(one, 0), epoch(other, 0), strict=True)
  )
  assert not any(same(a, b) for a, b in itertools.product(epoch(one, 0), epoch(one, 1)))
  parts = [training([CORPUS], [0.5], seed=seed) for seed in (7, 8)]
  assert recover(epoch(parts[0], 0)) != recover(epoch(parts[1], 0))


@given(
  st.lists(
    st.tuples(st.integers(1, SHAPE.source_length), st.integers(1, SHAPE.target_length)),
    min_size=1,
    max_size=40,
  ),
  st.integers(1, 40),
  st.integers(1, 4),
  st.sampled_from([(1.0, 1.0), (1.0, 2.0)]),
  st.integers(0, 2**32 - 1),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_an_epoch_holds_every_pair_as_often_as_it_should(
  lengths, cut, rows, weights, seed
):
  sides = [
    Sentences.from_lists(
      [
        [100 + i, *[9] * (length[side] - 2), EOS_ID][: length[side]]
        for i, length in enumerate(lengths)
      ]
    )
    for side in (0, 1)
  ]
  parts = [
    part for part in (range(len(lengths))[:cut], range(len(lengths))[cut:]) if part
  ]
  corpora = [
    EncodedPairs(*(Sentences.from_lists([side[i] for i in part]) for side in sides), {})
    for part in parts
  ]
  batches = TrainingBatches(
    corpora, weights[: len(corpora)], SHAPE._replace(rows=rows), seed
  )
  wanted = collections.Counter()
  for corpus, weight in zip(corpora, weights, strict=False):
    for _ in range(int(weight)):
      wanted += pairs_in(corpus)
  for number in (0, 3):
    dealt = epoch(batches, number)
    # Arrays of this shape cannot exceed the capacities.
    for batch in dealt:
      chex.assert_type(list(batch.arrays().values()), np.int32)
      chex.assert_shape(list(batch[:3]), (rows, SHAPE.source_length))
      chex.assert_shape(list(batch[3:6]), (rows, SHAPE.target_length))
    assert recover(dealt) == wanted


def test_an_epoch_deals_rows_evenly():
  # Ten pairs that fill a row each make four batches, none with a single row.
  full = Sentences.from_lists([[9] * (SHAPE.target_length - 1) + [EOS_ID]] * 10)
  assert rows_used(epoch(training([EncodedPairs(full, full, {})]), 0)) == [3, 3, 2, 2]
  used = rows_used(epoch(training([make_pairs(67)]), 0))
  assert len(used) == -(-sum(used) // SHAPE.rows) and max(used) - min(used) <= 1


def rows_of(corpus):
  return Packing(corpus.source.lengths, corpus.target.lengths, *SHAPE[1:]).num_rows


@pytest.mark.parametrize(
  ('weight', 'epochs', 'times', 'most'),
  [(0.5, 2, 1, 1), (1.5, 2, 3, 2), (0.3, 10, 3, 2)],
)
def test_fractional_weights_use_every_pair_equally_often(weight, epochs, times, most):
  corpus = make_pairs(60)
  batches = training([corpus, OTHER], [weight, 1.0])
  total = collections.Counter()
  for number in range(epochs):
    dealt = epoch(batches, number)
    assert abs(sum(rows_used(dealt)) - rows_of(OTHER) - weight * rows_of(corpus)) < 1
    pairs = recover(dealt)
    assert pairs & pairs_in(OTHER) == pairs_in(OTHER)
    ours = pairs - pairs_in(OTHER)
    assert max(ours.values()) <= most
    total += ours
  assert total == collections.Counter(dict.fromkeys(pairs_in(corpus), times))


def test_no_pair_to_train_on_is_an_error():
  with pytest.raises(
    UserError, match=r'all training pairs were dropped; .* data\.max_length'
  ):
    TrainingBatches([make_pairs(0), CORPUS], [1.0, 0.0], SHAPE, 0)


@pytest.mark.parametrize('weights', [[0.028], [2.0, 0.04]])
def test_a_weight_that_takes_no_row_is_an_error(weights):
  assert (rows_of(CORPUS), rows_of(OTHER)) == (35, 23)
  wanted = (
    r'data\.passes_per_epoch must take at least one row of each '
    r'corpus; [0-9e.-]+ takes none of (35 rows \(61|23 rows \(41) pairs\)'
  )
  with pytest.raises(UserError, match=wanted):
    TrainingBatches([CORPUS, OTHER][: len(weights)], weights, SHAPE, 0)


def test_the_least_weight_takes_a_row_and_an_empty_corpus_none():
  batches = TrainingBatches([CORPUS, make_pairs(0)], [0.029, 0.5], SHAPE, 0)
  assert sum(rows_used([batches[1009]])) == 1


def test_scoring_holds_every_pair_once_always_the_same_way():
  twice = EncodedPairs(
    *(Sentences.concatenate([side, side]) for side in (CORPUS.source, CORPUS.target)),
    {},
  )
  assert recover(validation_batches(twice, SHAPE)) == pairs_in(CORPUS) + pairs_in(
    CORPUS
  )
  batches = validation_batches(CORPUS, SHAPE)
  assert recover(batches) == pairs_in(CORPUS)
  chex.assert_trees_all_equal(batches, validation_batches(CORPUS, SHAPE))
  used = rows_used(batches)
  assert used[:-1] == [SHAPE.rows] * (len(used) - 1) and 1 <= used[-1] <= SHAPE.rows


def sized(source_tokens, target_tokens) -> EncodedPairs:
  return EncodedPairs(
    Sentences.from_lists([[9] * source_tokens]),
    Sentences.from_lists([[9] * target_tokens]),
    {},
  )


@pytest.mark.parametrize(
  ('corpora', 'source_length'),
  [
    ([sized(10, 30)], 64),
    ([sized(11, 10)], 72),  # 64 · 1.1 = 70.4, rounded up to a multiple of 8
    ([sized(30, 10), sized(10, 30)], 64),
    ([sized(30, 10), sized(10, 10)], 128),
    ([sized(0, 0)], 64),
  ],
)
def test_the_source_side_is_longer_in_proportion_when_sources_are(
  corpora, source_length
):
  assert batch_shape(7 * 64, 64, corpora) == BatchShape(7, source_length, 64)
