"""Each target position has the number of its corpus where several are mixed, and only there."""

import itertools

import numpy as np
import pytest

from tests.data.test_corpora import config_of, encode, write
from transformer.data.batches import augmentation
from transformer.data.batches.augmentation import replace_sentences
from transformer.data.vocabulary.vocabulary import Vocabulary

# Corpora share no letter, so a text says which one it is from. All pairs of `long` are dropped.
LETTERS = {'first': 'abcde', 'long': 'fghij', 'second': 'klmno', 'third': 'pqrst'}
STEPS = 60


def words(letters, count, seed):
  rng = np.random.default_rng(seed)
  return [
    ' '.join(''.join(rng.choice(list(letters), 3)) for _ in range(rng.integers(1, 4)))
    for _ in range(count)
  ]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('mixed')
  for seed, (name, letters) in enumerate(LETTERS.items()):
    count = 20 + 10 * seed
    lines = [[letters * 20] * count] * 2
    if name != 'long':
      lines = [words(letters, count, 2 * seed + side) for side in range(2)]
    write(folder, name, *lines)
  write(folder, 'valid', words('abcde', 7, 100), words('abcde', 7, 101))
  return folder


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(
    [
      line
      for seed, letters in enumerate(LETTERS.values())
      for line in words(letters, 50, seed)
    ],
    300,
  )


def shorter(data, vocabulary):
  """Returns an augmentation that keeps the first word of some targets."""

  def augment(source, target, keys):
    chosen = np.flatnonzero(keys[1] % np.uint64(2))
    texts = [vocabulary.decode(target[number]).split()[0] for number in chosen]
    return source, replace_sentences(target, chosen, texts, vocabulary)

  return augment


def corpora_of(batch, vocabulary) -> list[set[str]]:
  """Returns the corpora of each row by the letters of its targets; compares the numbers."""
  found = [set() for _ in batch.corpus_ids]
  assert (
    batch.corpus_ids.shape == batch.target_tokens.shape
    and batch.corpus_ids.dtype == np.int32
  )
  assert not batch.corpus_ids[batch.target_segments == 0].any()
  for row, segments in enumerate(batch.target_segments):
    for segment in range(1, segments.max() + 1):
      here = segments == segment
      letters = set(vocabulary.decode(batch.target_tokens[row, here])) - {' '}
      (name,) = [name for name, own in LETTERS.items() if letters <= set(own)]
      assert set(batch.corpus_ids[row, here]) == {list(LETTERS).index(name)}
      found[row].add(name)
  return found


def rows_in(batches, steps, vocabulary) -> list[set[str]]:
  return list(
    itertools.chain(*(corpora_of(batches[step], vocabulary) for step in steps))
  )


@pytest.mark.parametrize(
  'changed',
  [{}, {'augmentations': (f'{__name__}:shorter',)}],
  ids=str,
)
@pytest.mark.parametrize(
  'mixture',
  [
    {},
    {'passes_per_epoch': (1.0, 1.0, 0.5, 1.0)},
    {'passes_per_epoch': (0.0, 1.0, 2.0, 0.0)},
  ],
  ids=str,
)
def test_a_position_has_the_place_of_its_corpus_in_data_train(
  folder, vocabulary, monkeypatch, mixture, changed
):
  monkeypatch.setattr(augmentation, '_PLANNED', 2)
  config = config_of(folder, train=tuple(LETTERS), **mixture, **changed)
  batches = encode(config, vocabulary).batches
  found = rows_in(batches, range(STEPS), vocabulary)
  passes = dict(zip(config.train, config.corpus_passes, strict=True))
  assert set.union(*found) == {
    name for name in LETTERS if passes[name] and name != 'long'
  }
  if passes['first']:  # The third corpus has as many passes, so they share rows.
    assert max(map(len, found)) > 1


@pytest.mark.parametrize(
  'changed',
  [
    {},
    {'augmentations': (f'{__name__}:shorter',)},
  ],
  ids=str,
)
def test_a_batch_of_one_corpus_has_no_numbers(folder, vocabulary, changed):
  alone = encode(config_of(folder, train=('third',), **changed), vocabulary)
  mixed = encode(config_of(folder, train=('third', 'first')), vocabulary)
  for batch in itertools.chain(
    [alone.batches[0], alone.batches[5]],
    *alone.valid_batches.values(),
    *mixed.valid_batches.values(),
  ):
    assert batch.corpus_ids is None and 'corpus_ids' not in batch.arrays()
