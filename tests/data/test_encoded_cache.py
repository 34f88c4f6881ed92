"""An encoding on disk is whole and equal to the encoding in memory, or is refused or absent."""

import errno
import json
import subprocess
import sys
import threading
from pathlib import Path

import chex
import numpy as np
import pytest

from tests.data.text.text_folder import open_text
from transformer.data import encoded_cache, encoding
from transformer.data.batches.training_batches import Shape, TrainingBatches
from transformer.data.encoded_cache import load_or_encode
from transformer.data.encoding import encode_for_training
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

WORDS = ['man', 'dog', 'red', 'shirt', 'mann', 'hund', 'rot', 'hemd', 'läuft', 'runs', 'über']
MAX_LENGTH = 19
# A process that loads or encodes the corpus of a folder.
PROCESS = """
import os, pathlib, sys
from tests.data.text.text_folder import open_text
from transformer.data import encoded_cache
from transformer.data.vocabulary.vocabulary import Vocabulary
folder, action = pathlib.Path(sys.argv[1]), sys.argv[2]
if action == 'die':
  os.replace = lambda *_: os._exit(3)
found = encoded_cache.load_or_encode(open_text(folder, 'en', 'de'),
                                     Vocabulary.load(folder / 'vocabulary.model'), 19)
print(len(found), found.source.take(range(len(found))).sum())
"""


def text(count, seed):
  rng = np.random.default_rng(seed)
  return [' '.join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(count)]


def write(folder, source, target):
  for language, lines in (('en', source), ('de', target)):
    (folder / f'train.{language}').write_text(''.join(f'{line}\n' for line in lines),
                                              encoding='utf-8')


@pytest.fixture(scope='module')
def vocabulary():
  return Vocabulary.train(text(300, 9), 300)


@pytest.fixture
def folder(tmp_path):
  write(tmp_path, [*text(131, 1), '', 'dog'], [*text(131, 2), 'hund', ''])
  return tmp_path


def corpus_in(folder):
  return open_text(folder, 'en', 'de')


def encodings(folder) -> list[Path]:
  """Returns the encodings beside the corpus, finished or not."""
  return sorted(path for path in folder.glob('encoded/*') if path.suffix != '.lock')


def sentences_of(pairs):
  return [(pairs.source[i].tolist(), pairs.target[i].tolist()) for i in range(len(pairs))]


def assert_same(found, wanted):
  assert found.counts == wanted.counts and len(found) == len(wanted)
  assert sentences_of(found) == sentences_of(wanted)


@pytest.fixture
def never_encoded_again(monkeypatch):
  def start():
    monkeypatch.setattr(encoded_cache, 'encode', None)
    monkeypatch.setattr(encoded_cache, 'encode_for_training', None)
  return start


def test_what_is_read_is_what_was_encoded(folder, vocabulary, never_encoded_again, monkeypatch):
  monkeypatch.setattr(encoding, '_CHUNK', 17)
  wanted = encode_for_training(corpus_in(folder), vocabulary, MAX_LENGTH)
  assert all(wanted.counts.values())  # Every reason to drop a pair occurs.
  written = load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  never_encoded_again()
  read = load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  for found in (written, read):
    assert_same(found, wanted)
    batches = [TrainingBatches([pairs], [1.0], Shape(3, 24, MAX_LENGTH), 0)
               for pairs in (found, wanted)]
    assert batches[0].batches_in_epoch == batches[1].batches_in_epoch
    for step in (0, 5, 1009):
      chex.assert_trees_all_equal(batches[0][step], batches[1][step])


@pytest.mark.parametrize('max_length', [2, 7, 23, 1000])
def test_one_encoding_serves_every_length(folder, vocabulary, never_encoded_again, max_length):
  wanted = encode_for_training(corpus_in(folder), vocabulary, max_length)
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  never_encoded_again()
  assert_same(load_or_encode(corpus_in(folder), vocabulary, max_length), wanted)


def test_one_encoding_serves_every_limit(folder, vocabulary, never_encoded_again):
  lines = text(131, 1)
  write(folder, [*lines, *lines, 'dog', 'dog ' * 6], [*text(131, 2), *text(131, 2), 'dog', 'rot'])
  limits = [{}, {'max_length_ratio': 3.0}, {'max_length_ratio': 1.5}]
  wanted = [encode_for_training(corpus_in(folder), vocabulary, MAX_LENGTH, **each)
            for each in limits]
  assert len({len(each) for each in wanted}) == len(limits)
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  never_encoded_again()
  for each, pairs in zip(limits, wanted, strict=True):
    assert_same(load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH, **each), pairs)
  assert len(encodings(folder)) == 1


@pytest.mark.parametrize(('size', 'dtype'), [(1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_tokens_take_as_little_room_as_the_vocabulary_lets_them(folder, size, dtype):
  class Widest:
    fingerprint = str(size)
    source = target = property(lambda self: self)

    def __init__(self):
      self.size = size

    def encode_batch(self, sentences):
      return [[size - 1, 5] for _ in sentences]

  load_or_encode(corpus_in(folder), Widest(), MAX_LENGTH)
  found = load_or_encode(corpus_in(folder), Widest(), MAX_LENGTH)
  assert found.target[3].tolist() == [size - 1, 5, 2]
  for name in ('source_tokens.npy', 'target_tokens.npy'):
    tokens = np.load(encodings(folder)[0] / name, allow_pickle=False)
    assert tokens.dtype == dtype and len(tokens) == 3 * len(corpus_in(folder))


def test_every_change_of_text_vocabulary_or_languages_is_another_encoding(folder, vocabulary):
  def count():
    load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
    return len(encodings(folder))

  assert (count(), count()) == (1, 1)
  load_or_encode(open_text(folder, 'de', 'en'), vocabulary, MAX_LENGTH)
  assert count() == 2
  other = Vocabulary.train(text(300, 9), 301)
  found = load_or_encode(corpus_in(folder), other, MAX_LENGTH)
  assert_same(found, encode_for_training(corpus_in(folder), other, MAX_LENGTH))
  assert count() == 3
  lines = (folder / 'train.de').read_text(encoding='utf-8').splitlines()
  write(folder, (folder / 'train.en').read_text(encoding='utf-8').splitlines(),
        [*lines[:-2], 'hemd', ''])
  assert count() == 4


def test_other_text_under_the_same_fingerprint_is_another_encoding(folder, vocabulary):
  # As after a TFDS set is prepared anew with the same metadata.
  class Alike(list):
    name, fingerprint, notes = 'alike', 'alike', ()

  Alike.folder = folder
  for pairs in ([('man', 'mann')] * 9, [('man', 'mann')] * 8 + [('dog', 'hund')]):
    found = load_or_encode(Alike(pairs), vocabulary, MAX_LENGTH)
    assert_same(found, encode_for_training(pairs, vocabulary, MAX_LENGTH))
  assert len(encodings(folder)) == 2


@pytest.mark.parametrize('error', [KeyboardInterrupt, UserError])
def test_what_is_interrupted_never_began(folder, vocabulary, monkeypatch, error):
  def interrupted(corpus, vocabulary):
    yield next(encoding.encode(corpus, vocabulary))
    raise error

  with monkeypatch.context() as patch:
    patch.setattr(encoding, '_CHUNK', 17)
    patch.setattr(encoded_cache, 'encode', interrupted)
    with pytest.raises(error):
      load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  assert encodings(folder) == []


def run_process(folder, action):
  return subprocess.Popen([sys.executable, '-c', PROCESS, str(folder), action],
                          cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)


def test_what_was_killed_is_made_again(folder, vocabulary):
  vocabulary.save(folder / 'vocabulary.model')
  process = run_process(folder, 'die')
  assert process.communicate()[0] == '' and process.returncode == 3
  assert [path.suffix for path in encodings(folder)] == ['.tmp']
  assert_same(load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH),
              encode_for_training(corpus_in(folder), vocabulary, MAX_LENGTH))
  assert [path.suffix for path in encodings(folder)] == ['']


def test_what_was_killed_on_another_machine_is_removed(folder, vocabulary):
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  whole, = encodings(folder)
  left = whole.rename(whole.with_name(f'{whole.name}.elsewhere.1009.{"0" * 32}.tmp'))
  other = left.with_name(f'other.elsewhere.1009.{"0" * 32}.tmp')
  other.mkdir()
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  assert encodings(folder) == sorted([whole, other])


def test_processes_that_start_together_all_end_well(folder, vocabulary):
  vocabulary.save(folder / 'vocabulary.model')
  processes = [run_process(folder, 'load') for _ in range(3)]
  said = {process.communicate()[0] for process in processes}
  wanted = encode_for_training(corpus_in(folder), vocabulary, MAX_LENGTH)
  assert said == {f'{len(wanted)} {wanted.source.take(range(len(wanted))).sum()}\n'}
  assert [process.returncode for process in processes] == [0, 0, 0]
  assert len(encodings(folder)) == 1


def test_the_second_waits_for_the_first_and_takes_what_it_made(folder, vocabulary, monkeypatch):
  began, waits, times = threading.Event(), threading.Event(), []

  def slow(corpus, vocabulary):
    times.append(1)
    began.set()
    assert waits.wait(20)
    yield from encoding.encode(corpus, vocabulary)

  monkeypatch.setattr(encoded_cache, 'encode', slow)
  monkeypatch.setattr(encoded_cache.logging, 'info',
                      lambda message, *_: 'waiting' in message and waits.set())
  found = []
  threads = [threading.Thread(target=lambda: found.append(
      load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH))) for _ in range(2)]
  threads[0].start()
  assert began.wait(20)
  threads[1].start()
  for thread in threads:
    thread.join()
  assert len(times) == 1 and len(found) == 2
  assert_same(*found)


@pytest.mark.parametrize('name', ['source_tokens.npy', 'source_lengths.npy', 'target_tokens.npy',
                                  'target_lengths.npy'])
def test_a_wrong_byte_is_found_wherever_it_is(folder, vocabulary, name):
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  path = encodings(folder)[0] / name
  whole = path.read_bytes()
  for place in (0, 9, 60, 128, len(whole) // 2, len(whole) - 1):
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1:])
    with pytest.raises(UserError, match=f'is damaged: {name} is not as .* remove that folder'):
      load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  for damaged in (whole[:-1], whole + b'\0', b''):
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=f'is damaged: {name} is not as'):
      load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  path.unlink()
  with pytest.raises(UserError, match=f'is damaged: .*{name} cannot be read') as error:
    load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  assert '\n' not in str(error.value)
  path.write_bytes(whole)
  assert len(load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH))


def test_a_wrong_byte_in_what_describes_it_is_found(folder, vocabulary):
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  path = encodings(folder)[0] / 'about.json'
  whole = path.read_bytes()
  for place in range(len(whole)):
    for bit in (place % 8, (place + 3) % 8):
      path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1:])
      with pytest.raises(UserError, match=r'is damaged: about\.json is missing or is not as'):
        encoded_cache.read(path.parent, {})


@pytest.mark.parametrize('content', ['', '[]', '7', '{}', '{"format": 1', '[' * 99_999, None])
def test_a_description_that_says_nothing_is_refused(folder, vocabulary, content):
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  path = encodings(folder)[0] / 'about.json'
  path.unlink() if content is None else path.write_text(content)
  with pytest.raises(UserError, match=r'is damaged: about\.json is missing or is not as it was'):
    load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)


def test_a_description_of_something_else_is_refused(folder, vocabulary):
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  with pytest.raises(UserError, match=r'is damaged: about\.json is not as it was written'):
    encoded_cache.read(encodings(folder)[0], {'pairs': 7})


def test_an_encoding_records_its_corpus_vocabulary_and_files(folder, vocabulary):
  load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH)
  about = json.loads((encodings(folder)[0] / 'about.json').read_text())
  assert about['corpus'] == corpus_in(folder).fingerprint and about['pairs'] == 133
  assert about['vocabulary'] == vocabulary.fingerprint
  assert {name: each['bytes'] for name, each in about['files'].items()} == {
      path.name: path.stat().st_size for path in encodings(folder)[0].glob('*.npy')}


def warnings_of(monkeypatch):
  said = []
  monkeypatch.setattr(encoded_cache.logging, 'warning',
                      lambda message, *values: said.append(message % values))
  return said


def test_where_nothing_can_be_written_it_is_encoded_in_memory(folder, vocabulary, monkeypatch):
  (folder / 'encoded').write_text('a file where the folder should be')
  said = warnings_of(monkeypatch)
  assert_same(load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH),
              encode_for_training(corpus_in(folder), vocabulary, MAX_LENGTH))
  assert len(said) == 1 and 'encoded in memory' in said[0] and '\n' not in said[0]


def test_a_text_that_cannot_be_read_is_not_taken_for_a_disk_that_cannot_be_written(
    folder, vocabulary, monkeypatch):
  corpus, encode, said = corpus_in(folder), encoded_cache.encode, warnings_of(monkeypatch)

  def lost(*arguments):
    (folder / 'train.de').rename(folder / 'gone')
    return encode(*arguments)

  monkeypatch.setattr(encoded_cache, 'encode', lost)
  with pytest.raises(UserError, match=r'train\.de'):
    load_or_encode(corpus, vocabulary, MAX_LENGTH)
  assert said == [] and encodings(folder) == []


@pytest.mark.parametrize('where', ['files.flush', '_growing', '_only_one'])
def test_a_full_disk_and_a_read_only_one_leave_nothing(folder, vocabulary, monkeypatch, where):
  def fail(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  said = warnings_of(monkeypatch)
  monkeypatch.setattr(f'transformer.data.encoded_cache.{where}', fail)
  assert_same(load_or_encode(corpus_in(folder), vocabulary, MAX_LENGTH),
              encode_for_training(corpus_in(folder), vocabulary, MAX_LENGTH))
  assert encodings(folder) == []
  assert len(said) == 1 and 'No space left on device' in said[0]
