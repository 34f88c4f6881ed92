"""A run's corpora are opened, encoded, counted and fingerprinted under their names."""

import chex
import numpy as np
import pytest

from tests.data.batches.test_training_batches import recover
from tests.sentences import MIXED_WORDS
from transformer.data import corpora as corpora_module
from transformer.data.batches.augmentation import replace_sentences
from transformer.data.config import DataConfig
from transformer.data.corpora import make_run_batches, open_corpora
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.vocabulary import Vocabulary

MAX_LENGTH = 19
LONG = ' '.join(MIXED_WORDS * 3)


def backwards(data, vocabulary):
  """Returns the augmentation that reverses the words of sources."""

  def augment(source, target, keys):
    del keys
    numbers = np.arange(len(source))
    texts = [
      ' '.join(vocabulary.decode(source[number]).split()[::-1]) for number in numbers
    ]
    return replace_sentences(source, numbers, texts, vocabulary.source), target

  return augment


def text(count, seed):
  rng = np.random.default_rng(seed)
  return [' '.join(rng.choice(MIXED_WORDS, rng.integers(1, 4))) for _ in range(count)]


def write(folder, prefix, source, target):
  for language, lines in (('en', source), ('de', target)):
    (folder / f'{prefix}.{language}').write_text(
      ''.join(f'{line}\n' for line in lines), encoding='utf-8'
    )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('text')
  write(
    folder,
    'one',
    [*text(31, 1), '', LONG, 'dog', LONG],
    [*text(31, 2), 'hund', 'a', LONG, LONG],
  )
  write(folder, 'two', text(17, 3), text(17, 4))
  write(folder, 'valid', [*text(11, 5), LONG, ''], [*text(11, 6), 'rot', LONG])
  return folder


@pytest.fixture(scope='module')
def vocabulary(folder):
  return Vocabulary.train([*text(31, 1), *text(31, 2)] * 3, 300)


def config_of(folder, **changes) -> DataConfig:
  return DataConfig(
    **{
      'source': 'text',
      'dir': str(folder),
      'train': ('one', 'two'),
      'valid': 'valid',
      'source_language': 'en',
      'target_language': 'de',
      'max_length': MAX_LENGTH,
      **changes,
    }
  )


def encode(config, vocabulary, seed=0):
  return make_run_batches(
    config, open_corpora(config), vocabulary, 5 * MAX_LENGTH, seed
  )


def pairs_in(batches):
  return sum(int(batch.target_segments.max(axis=1).sum()) for batch in batches)


def epoch(batches):
  return [batches[step] for step in range(batches.batches_in_epoch)]


@pytest.mark.parametrize('chunk', [1, 7, 1000])
def test_the_vocabulary_sees_every_training_sentence_and_no_other(
  folder, monkeypatch, chunk
):
  monkeypatch.setattr(corpora_module, '_CHUNK', chunk)
  corpora = open_corpora(config_of(folder))
  expected = [
    side for corpus in corpora.train.values() for pair in corpus[:] for side in pair
  ]
  assert len(expected) == 2 * (35 + 17)
  for at_most in (35 + 17, 35 + 18, 1_000_000):
    assert list(corpora.training_text(at_most)) == expected


class Numbers:
  """A corpus of numbered pairs that counts its reads."""

  def __init__(self, name, length):
    self.name, self.length, self.reads = name, length, 0

  def __len__(self):
    return self.length

  def __getitem__(self, index):
    self.reads += index.start < min(index.stop, self.length)
    return [
      (f'{self.name} {i}', f'{self.name} {i} too') for i in range(self.length)[index]
    ]


@pytest.mark.parametrize(
  ('places', 'at_most'), [(1, 13), (7, 500), (10_000, 1), (7, 1012)]
)
def test_a_vocabulary_is_trained_on_a_sample_of_all_corpora(
  monkeypatch, places, at_most
):
  monkeypatch.setattr(corpora_module, '_PLACES', places)
  corpora = corpora_module.Corpora(
    {'a': Numbers('a', 811), 'b': Numbers('b', 202)}, None
  )
  numbers = {
    f'{name} {i}': i + 811 * (name == 'b')
    for name, corpus in corpora.train.items()
    for i in range(len(corpus))
  }
  sentences = list(corpora.training_text(at_most))
  assert sentences == list(corpora.training_text(at_most))
  sources, targets = sentences[::2], sentences[1::2]
  assert targets == [f'{source} too' for source in sources]
  chosen = [numbers[source] for source in sources]
  run = 1 + at_most // min(places, at_most)
  assert at_most - run <= len(chosen) <= at_most and chosen == sorted(set(chosen))
  # The sample has the right fraction of the pairs before any position, to within a run.
  for index, number in enumerate(chosen):
    assert abs(index - number * at_most / 1013) <= run
  # Pairs are read in runs, not one by one.
  assert sum(corpus.reads for corpus in corpora.train.values()) <= 2 * (
    min(places, at_most) + 2
  )


def test_oddities_of_a_file_are_logged(tmp_path, caplog):
  write(tmp_path, 'one', ['dog\rcat\r\r'], ['hund'])
  write(tmp_path, 'valid', ['man'], ['mann\r\r'])
  open_corpora(config_of(tmp_path, train=('one',)))
  train, valid = caplog.messages
  assert 'one.en' in train and 'valid.de' in valid


def test_counts_are_kept_by_corpus(folder, vocabulary):
  encoded = encode(config_of(folder), vocabulary)
  assert encoded.counts == {
    'train/one': {
      'kept': 31,
      'dropped: empty side': 1,
      'dropped: source too long': 2,
      'dropped: target too long': 1,
    },
    'train/two': {
      'kept': 17,
      'dropped: empty side': 0,
      'dropped: source too long': 0,
      'dropped: target too long': 0,
    },
    'valid': {
      'kept': 13,
      'truncated: source too long': 1,
      'truncated: target too long': 1,
    },
  }
  assert pairs_in(epoch(encoded.batches)) == 31 + 17
  assert pairs_in(encoded.valid_batches['valid']) == 13


def test_every_validation_set_is_encoded_under_its_name(folder, vocabulary):
  config = config_of(folder, valid=('valid', 'two'))
  encoded, alone = (
    encode(changed, vocabulary) for changed in (config, config_of(folder, valid='two'))
  )
  prints = open_corpora(config).fingerprints()
  assert list(prints) == ['train/one', 'train/two', 'valid', 'valid/two']
  assert prints['valid/two'] == prints['train/two'] != prints['valid']
  assert (
    encoded.counts['valid']['kept'] == 13 and encoded.counts['valid/two']['kept'] == 17
  )
  chex.assert_trees_all_equal(
    encoded.valid_batches['valid/two'], alone.valid_batches['valid']
  )


def test_limits_of_the_config_are_honoured_and_counted(
  folder, tmp_path, vocabulary, caplog
):
  encode(config_of(folder, train=('two',)), vocabulary)
  assert caplog.messages == []
  for name in ('two', 'valid'):
    write(tmp_path, name, ['dog', 'dog', 'man'], ['dog', 'hund', 'rot hemd rot hemd'])
  encoded = encode(
    config_of(tmp_path, train=('two',), max_length_ratio=2.0), vocabulary
  )
  assert encoded.counts['train/two']['dropped: length ratio'] == 1
  assert pairs_in(epoch(encoded.batches)) == encoded.counts['train/two']['kept'] == 2
  # Validation keeps all pairs.
  assert (
    pairs_in(encoded.valid_batches['valid']) == encoded.counts['valid']['kept'] == 3
  )
  (warning,) = caplog.messages
  assert '33.3% of the training pairs are dropped' in warning
  caplog.clear()
  write(tmp_path, 'two', ['dog'] * 20, ['hund'] * 19 + ['rot hemd rot hemd'])
  encode(config_of(tmp_path, train=('two',), max_length_ratio=2.0), vocabulary)
  assert caplog.messages == []  # A twentieth is no reason to worry.


def test_weights_reach_the_corpus_that_they_are_for(folder, vocabulary):
  for weights, pairs in (
    ((1.0, 1.0), 48),
    ((2.0, 1.0), 79),
    ((1.0, 3.0), 82),
    ((), 48),
  ):
    batches = encode(config_of(folder, passes_per_epoch=weights), vocabulary).batches
    assert pairs_in(epoch(batches)) == pairs


def test_augmentation_is_only_in_training(folder, vocabulary):
  config = config_of(folder)
  plain = encode(config, vocabulary)
  noisy = encode(
    config_of(folder, augmentations=(f'{__name__}:backwards',)), vocabulary
  )
  chex.assert_trees_all_equal(noisy.valid_batches, plain.valid_batches)

  def ids(batches, count):
    return set(recover(batches[step] for step in range(count)))

  def said(pairs):
    return {tuple(map(vocabulary.decode, pair)) for pair in pairs}

  before = said(ids(plain.batches, 2 * plain.batches.batches_in_epoch))
  assert before == {
    pair
    for name in ('one', 'two')
    for pair in open_corpus(config, name)[:]
    if all(0 < len(vocabulary.encode(side)) < MAX_LENGTH for side in pair)
  }
  after = ids(noisy.batches, 2 * noisy.batches.batches_per_window)
  wanted = {(' '.join(source.split()[::-1]), target) for source, target in before}
  assert said(after) == wanted != before
