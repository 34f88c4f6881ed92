"""Augmentation is a function of (seed, round, pair), and a user error is one line."""

import collections
import hashlib
import itertools

import chex
import numpy as np
import pytest

from tests.data.batches.test_training_batches import recover
from transformer.data.batch import EOS_ID
from transformer.data.batches import augmentation
from transformer.data.batches.augmentation import (
  AugmentedBatches,
  augment_pairs,
  load_augmentations,
  uniform,
)
from transformer.data.batches.shuffling import mix_bits
from transformer.data.batches.training_batches import BatchShape, TrainingBatches
from transformer.data.config import DataConfig
from transformer.data.encoding import (
  EncodedPairs,
  Sentences,
  encode_in_memory,
  filter_for_training,
)
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError


def some_pairs(count):
  """Returns different sentences of a few words."""
  rng = np.random.default_rng(0)
  words = [
    ''.join(rng.choice(list('abdeiklmnorst'), rng.integers(2, 9))) for _ in range(97)
  ]
  return [
    tuple(
      f'{" ".join(rng.choice(words, rng.integers(2, 9)))} {number}' for _ in range(2)
    )
    for number in range(count)
  ]


PAIRS = some_pairs(211)
SHAPE = BatchShape(rows=5, source_length=72, target_length=64)


@pytest.fixture(scope='module')
def vocabulary() -> Vocabulary:
  return Vocabulary.train(itertools.chain.from_iterable(PAIRS), 500)


@pytest.fixture(scope='module')
def plan(vocabulary) -> TrainingBatches:
  pairs = filter_for_training(*encode_in_memory(PAIRS, vocabulary), SHAPE.target_length)
  assert len(pairs) == len(PAIRS)
  return TrainingBatches([pairs], [1.0], SHAPE, seed=7)


def in_other_pieces(vocabulary):
  """Returns an augmentation that spells three in ten tokens of both sides by their characters."""
  ids = {vocabulary.piece(token): token for token in range(vocabulary.size)}

  def spelled(token):
    piece = vocabulary.piece(token)
    return [token] if token == EOS_ID else [ids[letter] for letter in piece]

  def other_pieces(sentences, keys):
    sides = []
    for number, key in enumerate(keys):
      tokens = sentences[number].tolist()
      draws = uniform(mix_bits(key + np.arange(len(tokens), dtype=np.uint64)))
      cuts = (
        spelled(token) if draw < 0.3 else [token]
        for token, draw in zip(tokens, draws, strict=True)
      )
      sides.append(list(itertools.chain.from_iterable(cuts)))
    return Sentences.from_lists(sides)

  def augment(source, target, keys):
    return other_pieces(source, keys[0]), other_pieces(target, keys[1])

  return augment


@pytest.fixture(scope='module')
def batches(plan, vocabulary) -> AugmentedBatches:
  return AugmentedBatches(plan, [('m:pieces', in_other_pieces(vocabulary))], seed=7)


def segmentations(batches, steps):
  """Returns the pairs of ids in some batches, with counts."""
  return recover(batches[step] for step in steps)


def texts(pieces, vocabulary):
  """Returns the pairs of texts in some batches, with counts."""
  said = collections.Counter()
  for (source, target), times in pieces.items():
    assert source[-1] == target[-1] == EOS_ID
    said[vocabulary.decode(source), vocabulary.decode(target)] += times
  return said


def epoch(batches, number):
  """Returns the steps of an epoch, which is one window unless a test makes windows small."""
  size = (
    batches.batches_per_window
    if isinstance(batches, AugmentedBatches)
    else batches.batches_in_epoch
  )
  return range(number * size, (number + 1) * size)


def test_each_epoch_resegments_every_pair_once(batches, vocabulary):
  epochs = [segmentations(batches, epoch(batches, number)) for number in (0, 1)]
  for pieces in epochs:
    assert texts(pieces, vocabulary) == collections.Counter(PAIRS)
  for one, other in itertools.combinations(epochs, 2):
    assert len(one & other) < len(PAIRS) / 10
  plain = filter_for_training(*encode_in_memory(PAIRS, vocabulary), SHAPE.target_length)
  mean = np.mean([len(source) for pieces in epochs for source, _ in pieces])
  assert mean > 1.1 * plain.source.lengths.mean()


def test_batches_do_not_depend_on_the_order_of_requests(plan, vocabulary, batches):
  whole = list(batches.iterate(0, 40))
  fresh = AugmentedBatches(plan, [('m:pieces', in_other_pieces(vocabulary))], seed=7)
  for step in np.random.default_rng(1).permutation(40):
    chex.assert_trees_all_equal(fresh[int(step)], whole[step])
  chex.assert_trees_all_equal(list(fresh.iterate(31, 40)), whole[31:])


def test_a_sentence_never_has_more_tokens_than_the_longest_that_is_allowed():
  plan = TrainingBatches(
    [
      EncodedPairs(
        *(
          Sentences.from_lengths(np.full(60, 9, np.int32), np.full(6, 10, np.int32))
          for _ in range(2)
        ),
        {},
      )
    ],
    [1.0],
    BatchShape(2, 96, 24),
    seed=0,
  )

  def of_length(length, sentences):
    return Sentences.from_lengths(
      np.full(length * len(sentences), 7, np.int32),
      np.full(len(sentences), length, np.int32),
    )

  def lengths(*augmentations):
    named = [('m:f', augment) for augment in augmentations]
    batch = AugmentedBatches(plan, named, seed=0)[0]
    return batch.source_positions.max() + 1, batch.target_positions.max() + 1

  def long_source(source, target, keys):
    return of_length(25, source), target

  def long_target(source, target, keys):
    return source, of_length(24, target)

  def both(source, target, keys):
    return of_length(12, source), of_length(13, target)

  # 25 tokens are too many, 24 are not. An augmentation changes both sides of a pair, or none.
  assert lengths(long_source, long_target) == (10, 24)
  assert lengths(lambda *pair: (long_source(*pair)[0], long_target(*pair)[1])) == (
    10,
    10,
  )
  assert lengths(lambda *pair: (both(*pair)[0], of_length(25, pair[1]))) == (10, 10)
  assert lengths(both, long_source, long_target) == (12, 24)


def test_windows_hold_the_epoch_between_them(plan, vocabulary, monkeypatch):
  monkeypatch.setattr(augmentation, '_PLANNED', 3)
  batches = AugmentedBatches(plan, [('m:pieces', in_other_pieces(vocabulary))], seed=7)
  # Windows cross the ends of epochs, so this takes the epochs that fill whole windows.
  epochs = next(
    n
    for n in range(1, 100)
    if n * plan.batches_in_epoch % batches.planned_per_window == 0
  )
  windows = epochs * plan.batches_in_epoch // batches.planned_per_window
  pieces = segmentations(batches, range(windows * batches.batches_per_window))
  assert windows > epochs > 0
  assert texts(pieces, vocabulary) == collections.Counter(dict.fromkeys(PAIRS, epochs))


def test_a_window_that_needs_more_rows_than_there_are_leaves_few_pairs_out(
  plan, vocabulary, monkeypatch
):
  monkeypatch.setattr(augmentation, '_SPARE', -0.1)
  batches = AugmentedBatches(plan, [('m:pieces', in_other_pieces(vocabulary))], seed=7)
  said = texts(segmentations(batches, epoch(batches, 0)), vocabulary)
  assert said < collections.Counter(PAIRS)
  assert said.total() > 0.85 * len(PAIRS)


def test_batches_are_the_same_in_every_process(batches):
  """The first batch, and one of the third epoch, match an earlier process."""
  made = [batches[step] for step in (0, 1, 2 * batches.batches_per_window + 1)]
  digests = [
    hashlib.sha256(np.concatenate(batch[:6], None).tobytes()).hexdigest()[:16]
    for batch in made
  ]
  assert digests == ['5c1fe4b0a32d583e', 'aa58b07e43b05498', 'f2a2f5042f7fbddc']


LINES = ['two dogs run', 'a woman sits', 'wet grass'] * 200
KEYS = mix_bits(np.arange(len(LINES), dtype=np.uint64))


def fails_to_augment(data, vocabulary):
  return lambda source, target, keys: 1 // 0


def loses_sentences(data, vocabulary):
  return lambda source, target, keys: (source, target.select(np.arange(3)))


def said(vocabulary, settings, lines=LINES, keys=KEYS, side=0):
  sides = (Sentences.from_lists_with_eos(vocabulary.encode_batch(lines)),) * 2
  augmentations = load_augmentations(
    DataConfig(augmentations=tuple(settings)), vocabulary
  )
  pairs = augment_pairs(
    augmentations, EncodedPairs(*sides, {}), np.stack([keys, keys]), longest=64
  )
  augmented = (pairs.source, pairs.target)[side]
  return [vocabulary.decode(augmented[number]) for number in range(len(lines))]


def test_the_example_of_the_page_changes_a_fraction_of_the_sources(
  doc_plugins, vocabulary
):
  some = ('my_augmentations:capitals', 0.3)
  lines = said(vocabulary, [some])
  changed = [line == plain.upper() for line, plain in zip(lines, LINES, strict=True)]
  assert {line.lower() for line in lines} == set(LINES) and 0.2 < np.mean(changed) < 0.4
  assert said(vocabulary, [some], side=1) == LINES
  assert said(vocabulary, [some], LINES[::-1], KEYS[::-1]) == lines[::-1]
  # The second time, other sentences are chosen.
  twice = [line.isupper() for line in said(vocabulary, [some, some])]
  assert 0.4 < np.mean(twice) < 0.6


@pytest.mark.parametrize(
  ('setting', 'fact'),
  [
    ('no_module:f', 'the augmentation no_module:f cannot be imported'),
    ('my_augmentations:capitals', r'capitals cannot be built: TypeError'),
    (f'{__name__}:fails_to_augment', 'fails_to_augment failed: ZeroDivisionError'),
    (f'{__name__}:loses_sentences', 'must return two Sentences with the same number'),
  ],
)
def test_user_error_is_a_one_line_message_that_names_the_augmentation(
  doc_plugins, vocabulary, setting, fact
):
  with pytest.raises(UserError, match=fact) as caught:
    said(vocabulary, [setting])
  assert '\n' not in str(caught.value)
