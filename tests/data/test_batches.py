"""The batch of step n is a function of (data, seed, n), and an epoch holds every pair."""

import collections
import itertools

import chex
import numpy as np
import pytest

from transformer.data.batch import EOS_ID
from transformer.data.batches import Shape, TrainingBatches, batch_shape, scoring_batches
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.errors import UserError

SHAPE = Shape(rows=3, source_length=29, target_length=23)


def make_pairs(count, first=0, longest=SHAPE.target_length, seed=0) -> EncodedPairs:
  """Pairs of random lengths, each with a word of its own on both sides."""
  rng = np.random.default_rng(seed)

  def side(word):
    lengths = rng.integers(2, longest + 1, count)
    return Sentences.join([[word + first + i, *rng.integers(5, 97, length - 2), EOS_ID]
                           for i, length in enumerate(lengths)])

  return EncodedPairs(side(1_000), side(500_000), {'kept': count})


def pairs_in(corpus: EncodedPairs):
  """Every pair as two tuples of ids, with how often it comes."""
  return collections.Counter((tuple(corpus.source[i].tolist()), tuple(corpus.target[i].tolist()))
                             for i in range(len(corpus)))


def sentences_in(tokens, segments, positions):
  """The sentences of one side of a row, having checked segments and positions."""
  sizes = np.bincount(segments)[1:] if segments.any() else np.zeros(0, int)
  real = sizes.sum()
  assert (sizes > 0).all()
  np.testing.assert_array_equal(segments[:real], np.repeat(np.arange(len(sizes)) + 1, sizes))
  np.testing.assert_array_equal(
      positions[:real], np.concatenate([np.zeros(0, int), *map(np.arange, sizes)]))
  assert not tokens[real:].any() and not segments[real:].any() and not positions[real:].any()
  return [tuple(each.tolist()) for each in np.split(tokens[:real], np.cumsum(sizes)[:-1])
          if len(each)]


def recover(batches):
  """The pairs that lie in batches, with how often each comes."""
  found = collections.Counter()
  for batch in batches:
    for row in zip(*batch, strict=True):
      source, target = sentences_in(*row[:3]), sentences_in(*row[3:])
      assert len(source) == len(target)
      found.update(zip(source, target, strict=True))
  return found


def training(corpora, weights=None, seed=7) -> TrainingBatches:
  return TrainingBatches(corpora, weights or [1.0] * len(corpora), SHAPE, seed)


def epoch(batches, number, first=None):
  size = batches.batches_in_epoch(number)
  first = number * size if first is None else first
  return [batches[step] for step in range(first, first + size)]


def rows_used(batches):
  return [int(batch.target_segments.any(axis=1).sum()) for batch in batches]


def same(one, other) -> bool:
  return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


CORPUS = make_pairs(61)
OTHER = make_pairs(41, first=10_000, seed=1)


def test_every_batch_is_int32_and_has_the_one_shape():
  batches = training([CORPUS])
  for batch in itertools.chain(epoch(batches, 0), scoring_batches(CORPUS, SHAPE)):
    chex.assert_type(list(batch), np.int32)
    chex.assert_shape(list(batch[:3]), (3, 29))
    chex.assert_shape(list(batch[3:]), (3, 23))


@pytest.mark.parametrize('weights', [[1.0, 1.0], [1.0, 0.3]])
def test_any_order_of_asking_gives_the_sequence(weights):
  whole = list(training([CORPUS, OTHER], weights).iterate(0, 60))
  assert len(whole) == 60
  one, asked = training([CORPUS, OTHER], weights), np.random.default_rng(3).permutation(60)
  for step in asked:
    assert same(one[int(step)], whole[step]), step
  for start, stop in ((0, 7), (13, 14), (31, 60), (5, 5)):
    part = list(training([CORPUS, OTHER], weights).iterate(start, stop))
    assert len(part) == stop - start
    chex.assert_trees_all_equal(part, whole[start:stop])


@pytest.mark.parametrize('weights', [[1.0, 1.0], [1.0, 0.3]])
def test_a_late_batch_needs_no_earlier_one(weights):
  late = 1009
  fresh = training([CORPUS, OTHER], weights)[late]
  used = training([CORPUS, OTHER], weights)
  for step in (0, 500, 3, 2003, 1010):
    used[step]
  chex.assert_trees_all_equal(used[late], fresh)


def test_another_seed_gives_other_batches():
  one, other = training([CORPUS], seed=7), training([CORPUS], seed=8)
  assert not any(same(a, b) for a, b in zip(epoch(one, 0), epoch(other, 0), strict=True))
  parts = [training([CORPUS], [0.5], seed=seed) for seed in (7, 8)]
  assert recover(epoch(parts[0], 0)) != recover(epoch(parts[1], 0))


def test_an_epoch_holds_every_pair_once_and_epochs_differ():
  batches = training([CORPUS, OTHER])
  epochs = [epoch(batches, number) for number in (0, 1, 5)]
  for each in epochs:
    assert recover(each) == pairs_in(CORPUS) + pairs_in(OTHER)
  for one, other in itertools.combinations(epochs, 2):
    assert not any(same(a, b) for a, b in itertools.product(one, other))


def test_an_epoch_deals_rows_evenly():
  # Ten pairs that fill a row each: four batches, none of which has one row alone.
  full = Sentences.join([[9] * (SHAPE.target_length - 1) + [EOS_ID]] * 10)
  assert rows_used(epoch(training([EncodedPairs(full, full, {})]), 0)) == [3, 3, 2, 2]
  used = rows_used(epoch(training([make_pairs(67)]), 0))
  assert len(used) == -(-sum(used) // SHAPE.rows) and max(used) - min(used) <= 1


def test_integer_weights_repeat_a_corpus():
  found = recover(epoch(training([CORPUS, OTHER], [2.0, 3.0]), 0))
  twice, thrice = pairs_in(CORPUS), pairs_in(OTHER)
  assert found == twice + twice + thrice + thrice + thrice


@pytest.mark.parametrize(('weight', 'epochs', 'times'), [(0.5, 2, 1), (1.5, 2, 3), (0.25, 4, 1)])
def test_fractional_weights_use_every_pair_equally_often(weight, epochs, times):
  corpus = make_pairs(60)
  batches = training([corpus, OTHER], [weight, 1.0])
  total, first, sizes = collections.Counter(), 0, []
  for number in range(epochs):
    found = recover(epoch(batches, number, first))
    first += batches.batches_in_epoch(number)
    assert found & pairs_in(OTHER) == pairs_in(OTHER)
    ours = found - pairs_in(OTHER)
    sizes.append(sum(ours.values()))
    assert max(ours.values()) - (min(ours.values()) if weight > 1 else 0) <= 1
    total += ours
  assert sizes == [round(60 * weight)] * epochs
  assert total == collections.Counter(dict.fromkeys(pairs_in(corpus), times))


def test_fractional_windows_go_round_without_favourites():
  corpus = make_pairs(61)
  batches = training([corpus], [0.3])
  total, first = collections.Counter(), 0
  for number in range(61):
    total += recover(epoch(batches, number, first))
    first += batches.batches_in_epoch(number)
  # 18 pairs an epoch, 61 epochs, 61 pairs: each exactly 18 times.
  assert set(total.values()) == {18} and set(total) == set(pairs_in(corpus))


@pytest.mark.parametrize(('corpora', 'weights'), [
    ([], []), ([make_pairs(0)], [1.0]), ([make_pairs(0), make_pairs(0)], [1.0, 2.0])])
def test_no_pair_to_train_on_is_an_error(corpora, weights):
  with pytest.raises(UserError, match=r'no pair left to train on; .* data\.max_length'):
    TrainingBatches(corpora, weights, SHAPE, 0)


@pytest.mark.parametrize('weights', [[0.008], [1.0, 0.012], [2.0, 0.012]])
def test_a_weight_that_takes_no_pair_is_an_error(weights):
  wanted = r'data\.train_weights must take at least one pair .* 0\.0\d+ of (61|41) pairs'
  with pytest.raises(UserError, match=wanted):
    TrainingBatches([CORPUS, OTHER][:len(weights)], weights, SHAPE, 0)
  # The least that takes a pair, and a corpus that is empty, are neither.
  found = recover([TrainingBatches([CORPUS, make_pairs(0)], [0.009, 0.5], SHAPE, 0)[1009]])
  assert sum(found.values()) == 1


def test_scoring_holds_every_pair_once_always_the_same_way():
  batches = scoring_batches(CORPUS, SHAPE)
  assert recover(batches) == pairs_in(CORPUS)
  chex.assert_trees_all_equal(batches, scoring_batches(CORPUS, SHAPE))
  used = rows_used(batches)
  assert used[:-1] == [SHAPE.rows] * (len(used) - 1) and 1 <= used[-1] <= SHAPE.rows


def test_scoring_keeps_pairs_that_come_twice():
  twice = EncodedPairs(*(Sentences.concatenate([side, side])
                         for side in (CORPUS.source, CORPUS.target)), {})
  assert recover(scoring_batches(twice, SHAPE)) == pairs_in(CORPUS) + pairs_in(CORPUS)


def sized(source_tokens, target_tokens) -> EncodedPairs:
  return EncodedPairs(Sentences.join([[9] * source_tokens]), Sentences.join([[9] * target_tokens]),
                      {})


@pytest.mark.parametrize(('corpora', 'source_length'), [
    ([sized(10, 10)], 64),
    ([sized(10, 30)], 64),
    ([sized(11, 10)], 72),  # 64 · 1.1 = 70.4, up to a multiple of 8
    ([sized(20, 10)], 128),
    ([sized(30, 10), sized(10, 30)], 64),
    ([sized(30, 10), sized(10, 10)], 128),
    ([sized(0, 0)], 64),
])
def test_the_source_side_is_longer_in_proportion_when_sources_are(corpora, source_length):
  assert batch_shape(7 * 64, 64, corpora) == Shape(7, source_length, 64)
