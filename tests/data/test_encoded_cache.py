"""An encoding on disk is whole and equal to the encoding in memory, or is made again."""

import errno
import gzip
import threading
from pathlib import Path

import chex
import numpy as np
import pytest

from tests.sentences import MIXED_WORDS
from transformer.data import encoded_cache, encoding
from transformer.data.batches.training_batches import BatchShape, TrainingBatches
from transformer.data.config import DataConfig
from transformer.data.encoded_cache import load_or_encode
from transformer.data.encoding import encode_in_memory, filter_for_training
from transformer.data.text.text_files import TextCorpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

NAMES = ['source.tokens', 'source.lengths', 'target.tokens', 'target.lengths']


def text(count, seed):
  rng = np.random.default_rng(seed)
  return [' '.join(rng.choice(MIXED_WORDS, rng.integers(1, 9))) for _ in range(count)]


def write(folder, source, target):
  for language, lines in (('en', source), ('de', target)):
    (folder / f'train.{language}').write_text(
      ''.join(f'{line}\n' for line in lines), encoding='utf-8'
    )


def corpus_in(folder, source='en', target='de'):
  return TextCorpus(
    DataConfig('text', dir=str(folder), source_language=source, target_language=target),
    'train',
  )


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(text(300, 9), 300)


@pytest.fixture
def folder(tmp_path):
  lines = text(31, 1)
  write(
    tmp_path,
    [*lines, *lines, '', 'dog', 'dog', 'dog ' * 6],
    [*text(31, 2), *text(31, 2), 'hund', '', 'dog', 'rot'],
  )
  return tmp_path


@pytest.fixture
def said(monkeypatch):
  """Returns the warnings."""
  warnings = []
  monkeypatch.setattr(
    encoded_cache.logging,
    'warning',
    lambda message, *values: warnings.append(message % values),
  )
  return warnings


def encodings(folder) -> list[Path]:
  """Returns the encodings next to the corpus, finished or not."""
  return sorted(path for path in folder.glob('encoded/*') if path.suffix != '.lock')


def assert_same(sides, wanted):
  for side, other in zip(sides, wanted, strict=True):
    assert len(side) == len(other)
    for number in range(len(side)):
      np.testing.assert_array_equal(side[number], other[number])


def test_one_encoding_serves_every_max_length_unchanged(
  folder, vocabulary, monkeypatch
):
  monkeypatch.setattr(encoding, '_CHUNK', 17)
  wanted = encode_in_memory(corpus_in(folder), vocabulary)
  assert_same(load_or_encode(corpus_in(folder), vocabulary), wanted)
  for name in ('encode', 'encode_in_memory'):
    monkeypatch.setattr(encoded_cache, name, None)
  read = load_or_encode(corpus_in(folder), vocabulary)
  assert_same(read, wanted)
  assert len(encodings(folder)) == 1
  for limits in ((19,), (2,), (7, 1.5)):
    pairs = [filter_for_training(*sides, *limits) for sides in (read, wanted)]
    assert pairs[0].counts == pairs[1].counts and all(pairs[0].counts.values())
    batches = [
      TrainingBatches([kept], [1.0], BatchShape(3, 24, 19), 0) for kept in pairs
    ]
    for step in (0, 1009):
      chex.assert_trees_all_equal(batches[0][step], batches[1][step])


def test_a_compressed_corpus_has_the_encoding_of_its_plain_text(folder, vocabulary):
  wanted = load_or_encode(corpus_in(folder), vocabulary)
  for path in (folder / 'train.en', folder / 'train.de'):
    path.with_name(f'{path.name}.gz').write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
  assert_same(load_or_encode(corpus_in(folder), vocabulary), wanted)
  assert len(encodings(folder)) == 1


def test_every_change_of_text_vocabulary_or_languages_is_another_encoding(
  folder, vocabulary
):
  def count(*languages, vocabulary=vocabulary):
    load_or_encode(corpus_in(folder, *languages), vocabulary)
    return len(encodings(folder))

  assert (count(), count(), count('de', 'en')) == (1, 1, 2)
  assert count(vocabulary=Vocabulary.train(text(300, 9), 301)) == 3
  lines = (folder / 'train.de').read_text(encoding='utf-8')
  (folder / 'train.de').write_text(lines[:-4] + 'rote\n', 'utf-8')
  assert count() == 4


@pytest.mark.parametrize('left', [[], ['.tmp']], ids=['interrupted', 'killed'])
def test_an_interrupted_encoding_is_removed_or_replaced(
  folder, vocabulary, monkeypatch, left
):
  def interrupted(corpus, vocabulary):
    yield next(encoding.encode(corpus, vocabulary))
    raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(encoding, '_CHUNK', 17)
    patch.setattr(encoded_cache, 'encode', interrupted)
    if left:  # A process that is killed removes nothing.
      patch.setattr(encoded_cache.files.shutil, 'rmtree', lambda *_, **__: None)
    load_or_encode(corpus_in(folder), vocabulary)
  assert [path.suffix for path in encodings(folder)] == left
  assert_same(
    load_or_encode(corpus_in(folder), vocabulary),
    encode_in_memory(corpus_in(folder), vocabulary),
  )
  assert [path.suffix for path in encodings(folder)] == ['']


def test_the_second_process_waits_for_the_encoding_of_the_first(
  folder, vocabulary, monkeypatch
):
  began, waits, times = threading.Event(), threading.Event(), []

  def slow(corpus, vocabulary):
    times.append(1)
    began.set()
    assert waits.wait(20)
    yield from encoding.encode(corpus, vocabulary)

  monkeypatch.setattr(encoded_cache, 'encode', slow)
  monkeypatch.setattr(
    encoded_cache.logging,
    'info',
    lambda message, *_: 'another process' in message and waits.set(),
  )
  results = []
  threads = [
    threading.Thread(
      target=lambda: results.append(load_or_encode(corpus_in(folder), vocabulary))
    )
    for _ in range(2)
  ]
  threads[0].start()
  assert began.wait(20)
  threads[1].start()
  for thread in threads:
    thread.join()
  assert len(times) == 1 and len(results) == 2
  assert_same(*results)


@pytest.mark.parametrize('name', [*NAMES, 'about.json'])
def test_a_damaged_encoding_is_made_again(folder, vocabulary, said, name):
  load_or_encode(corpus_in(folder), vocabulary)
  wanted = encode_in_memory(corpus_in(folder), vocabulary)
  path = encodings(folder)[0] / name
  whole = path.read_bytes()
  middle = len(whole) // 2
  wrong = whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :]
  damages = {'about.json': [wrong, None], NAMES[0]: [whole[:-1]]}.get(name, [wrong])
  for damaged in damages:
    path.unlink() if damaged is None else path.write_bytes(damaged)
    assert_same(load_or_encode(corpus_in(folder), vocabulary), wanted)
    assert path.read_bytes() == whole and 'is damaged; encoding it again' in said[-1]
  assert len(said) == len(damages)


@pytest.mark.parametrize(
  'where', ['a file for a folder', 'files.fsync_folder', 'fcntl.flock']
)
def test_where_nothing_can_be_written_it_is_encoded_in_memory(
  folder, vocabulary, monkeypatch, said, where
):
  def fail(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  if ' ' in where:
    (folder / 'encoded').write_text('')
  else:
    monkeypatch.setattr(f'transformer.data.encoded_cache.{where}', fail)
  assert_same(
    load_or_encode(corpus_in(folder), vocabulary),
    encode_in_memory(corpus_in(folder), vocabulary),
  )
  assert encodings(folder) == []
  assert len(said) == 1 and 'encoded in memory' in said[0] and '\n' not in said[0]


def test_a_text_that_cannot_be_read_is_an_error(folder, vocabulary):
  corpus = corpus_in(folder)
  (folder / 'train.de').rename(folder / 'gone')
  with pytest.raises(UserError, match=r'train\.de'):
    load_or_encode(corpus, vocabulary)
  assert encodings(folder) == []
