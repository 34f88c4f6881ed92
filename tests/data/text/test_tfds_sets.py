"""TFDS sets return the pairs that were written, or an error of one line."""

import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tensorflow_datasets.core import constants

from transformer.data.config import DataConfig
from transformer.data.encoded_cache import load_or_encode
from transformer.data.text import tfds_sets
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

NAME = 'wmt14_translate/de-en'
TRAIN = {f'Satz {i}: Straße\u2028 \x00 {"sehr " * i}': f'sentence {i}' for i in range(37)}


def config(folder, name=NAME, source='de', target='en') -> DataConfig:
  return DataConfig(name=name, dir=str(folder), source_language=source, target_language=target)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory, write_wmt14):
  folder = tmp_path_factory.mktemp('prepared')
  write_wmt14(folder, train=TRAIN.items(), test=list(TRAIN.items())[:5])
  return folder


@pytest.fixture
def copied(prepared, tmp_path):
  return shutil.copytree(prepared, tmp_path / 'copied')


def test_a_prepared_set_is_read_by_its_name(prepared):
  corpus = open_corpus(config(prepared), 'train')
  assert dict(corpus[:]) == TRAIN and len(corpus) == len(TRAIN)
  assert corpus.name == f'{NAME}:train' and corpus.notes == ()
  assert corpus[np.int64(3):4] == corpus[3:4]
  flipped = open_corpus(config(prepared, source='en', target='de'), 'train')
  assert flipped[3:4] == [corpus[3:4][0][::-1]]
  assert len(open_corpus(config(prepared), 'train[:10]+test')) == 15


def test_a_slice_of_a_set_is_what_its_pairs_are(prepared):
  corpus = open_corpus(config(prepared), 'train')
  pairs = corpus[:]
  for start, stop in ((0, None), (3, 11), (30, 99), (37, 57), (9, 5), (-2, None)):
    assert corpus[start:stop] == pairs[start:stop]
  with pytest.raises(ValueError, match='got a step of 2'):
    corpus[::2]


def test_an_example_that_is_not_utf8_is_named(prepared):
  examples = [{'de': b'eins', 'en': b'one'}, {'de': b'zw\xed\xa0\x80ei', 'en': b'two'}]

  class Source(list):
    def __getitems__(self, numbers):
      return [self[number] for number in numbers]

  corpus = tfds_sets.TfdsCorpus(config(prepared), 'train')
  corpus._examples = Source(examples)
  assert corpus[:1] == [('eins', 'one')]
  for index in (slice(0, 2), slice(1, 2)):
    with pytest.raises(UserError, match=rf'{NAME}:train must be UTF-8; example 2 is not, .* 0xed'):
      corpus[index]


def test_the_fingerprint_of_a_set(prepared, tmp_path, write_wmt14):
  def write(name, examples):
    write_wmt14(tmp_path / name, train=examples, test=list(examples)[:5])

  def fingerprint(folder, split='train', *languages):
    return open_corpus(config(folder, NAME, *languages), split).fingerprint

  plain = fingerprint(prepared)
  write('again', TRAIN.items())
  assert plain == fingerprint(tmp_path / 'again') and len(plain) == 64
  write('longer', [*TRAIN.items(), ('mehr', 'more')])
  write('other', [(de, f'{en}.') for de, en in TRAIN.items()])
  others = [fingerprint(tmp_path / 'longer'), fingerprint(tmp_path / 'other'),
            fingerprint(prepared, 'test'), fingerprint(prepared, 'train[:5]'),
            fingerprint(prepared, 'train', 'en', 'de')]
  assert len({plain, *others}) == 6


def test_a_corpus_is_picklable_and_read_by_threads(prepared):
  corpus = open_corpus(config(prepared), 'train')
  expected = corpus[:]
  assert sorted(expected) == sorted(TRAIN.items())
  assert pickle.loads(pickle.dumps(corpus))[:] == expected
  with ThreadPoolExecutor(8) as pool:
    fresh = open_corpus(config(prepared), 'train')  # The first read opens its files.
    assert list(pool.map(lambda place: fresh[place:place + 1][0], range(len(fresh)))) == expected


def test_the_home_folder_is_expanded(prepared, monkeypatch):
  monkeypatch.setenv('HOME', str(prepared.parent))
  assert dict(open_corpus(config(f'~/{prepared.name}'), 'train')[:]) == TRAIN


def test_an_unknown_set_gives_the_nearest_names(tmp_path):
  with pytest.raises(UserError, match=r"no 'wmt14_tranlate', .*; the nearest are wmt14_translate"):
    open_corpus(config(tmp_path, 'wmt14_tranlate/de-en'), 'train')


@pytest.mark.parametrize('name', ['a b/c', 'a/b/c/d', 'huggingface:opus', 'mnist/x=3', '/de-en'])
def test_a_name_of_another_form_is_an_error(tmp_path, name):
  with pytest.raises(UserError, match='must look like set/config'):
    open_corpus(config(tmp_path, name), 'train')


def test_an_unknown_config_or_version_is_an_error(prepared):
  with pytest.raises(UserError, match=r"wmt14_translate has no config 'xx-en'.* (de|cs)-en"):
    open_corpus(config(prepared, 'wmt14_translate/xx-en'), 'train')
  with pytest.raises(UserError, match=r'wmt14_translate cannot be opened: .*9\.9\.9'):
    open_corpus(config(prepared, f'{NAME}:9.9.9'), 'train')
  with pytest.raises(UserError, match='wmt_translate cannot be opened: '):
    open_corpus(config(prepared, 'wmt_translate'), 'train')


def test_a_set_that_is_not_prepared_says_what_to_run(tmp_path):
  folder = tmp_path / 'with space'
  with pytest.raises(UserError) as caught:
    open_corpus(config(folder), 'train')
  assert (f"run: python -m transformer.tools.prepare --name={NAME} '--data_dir={folder}';"
          in str(caught.value))
  assert not folder.exists()


def test_a_set_that_can_only_be_streamed_says_what_to_run(copied):
  info = copied / NAME / '1.0.0' / 'dataset_info.json'
  info.write_text(json.dumps(json.loads(info.read_text()) | {'fileFormat': 'tfrecord'}))
  with pytest.raises(UserError, match=rf'array_record .* {info.parent} holds tfrecord; remove '
                                      rf'.*--name={NAME} --data_dir={copied}'):
    open_corpus(config(copied), 'train')


def test_a_missing_split_says_which_there_are(prepared):
  for split in ('validation', 'validation[:3]', 'train[', 'all[:10%]'):
    with pytest.raises(UserError, match=r'no split .*; it has (train, test|test, train)'):
      open_corpus(config(prepared), split)


def test_an_empty_split_is_an_error(prepared):
  for split in ('train[:0]', 'train[2:1]', 'train[3:1]', 'train[2:1]+train'):
    with pytest.raises(UserError, match='at least one pair'):
      open_corpus(config(prepared), split)


def test_a_missing_shard_is_an_error(copied):
  shard = copied / NAME / '1.0.0' / 'wmt14_translate-train.array_record-00000-of-00001'
  shard.unlink()
  with pytest.raises(UserError, match=f'incomplete: {shard} is missing'):
    open_corpus(config(copied), 'train')


def test_other_languages_are_an_error(prepared):
  with pytest.raises(UserError, match=r'languages de and fr; it has (de, en|en, de)'):
    open_corpus(config(prepared, target='fr'), 'train')


def test_a_set_whose_code_is_elsewhere_is_read_from_its_files(copied):
  (copied / 'wmt14_translate').rename(copied / 'our_own')
  version = copied / 'our_own/de-en/1.0.0'
  for shard in version.glob('wmt14*'):
    shard.rename(version / shard.name.replace('wmt14_translate', 'our_own'))
  info = version / 'dataset_info.json'
  info.write_text(json.dumps(json.loads(info.read_text()) | {'name': 'our_own'}))
  for name in ('our_own/de-en', 'our_own/de-en:1.0.0'):
    assert dict(open_corpus(config(copied, name), 'train')[:]) == TRAIN


def test_an_older_version_is_read_from_its_files(copied, prepared):
  (copied / NAME / '1.0.0').rename(copied / NAME / '0.0.9')
  info = copied / NAME / '0.0.9' / 'dataset_info.json'
  info.write_text(json.dumps(json.loads(info.read_text()) | {'version': '0.0.9'}))
  for name in (NAME, f'{NAME}:0.0.9'):
    corpus = open_corpus(config(copied, name), 'train')
    assert dict(corpus[:]) == TRAIN
    assert corpus.fingerprint != open_corpus(config(prepared), 'train').fingerprint


@pytest.mark.parametrize('folder', ['gs://tfds-data', '/gs/tfds-data'])
def test_a_folder_that_tfds_takes_for_a_bucket_is_refused(monkeypatch, folder):
  monkeypatch.setattr(constants, 'DATA_DIR', folder)
  with pytest.raises(UserError, match='begins with gs://'):
    open_corpus(config(''), 'train')


def test_reading_a_set_imports_neither_tensorflow_nor_jax(prepared):
  code = ('import sys; from transformer.data.text.sources import open_corpus; '
          'from transformer.data.config import DataConfig; '
          f'assert len(open_corpus({config(prepared)!r}, "train")) == 37; '
          'assert not {"tensorflow", "jax"} & set(sys.modules)')
  subprocess.run([sys.executable, '-c', code], check=True)


def test_what_is_no_translation_set_is_refused(tmp_path):
  with pytest.raises(UserError, match=r'mnist is not a translation set.* it holds image, label'):
    open_corpus(config(tmp_path, 'mnist', 'en', 'de'), 'train')
  assert not list(tmp_path.iterdir())


def test_languages_are_looked_at_first(tmp_path):
  with pytest.raises(UserError, match='must hold the languages en and fr; it has de, en'):
    open_corpus(config(tmp_path, NAME, 'en', 'fr'), 'train')
  assert not list(tmp_path.iterdir())


def test_an_encoding_lies_in_its_set_and_goes_with_it(copied):
  vocabulary = Vocabulary.train([side for pair in TRAIN.items() for side in pair], 300)
  for source, target, split, number in (
      ('de', 'en', 'train', 1), ('de', 'en', 'train', 1), ('en', 'de', 'train', 2),
      ('de', 'en', 'test', 3), ('de', 'en', 'train[:9]', 4)):
    corpus = open_corpus(config(copied, source=source, target=target), split)
    found = load_or_encode(corpus, vocabulary, 999)
    assert [vocabulary.decode(found.source[i]) for i in range(len(found))] == [
        pair[0] for pair in corpus[:]]
    folders = [path for path in corpus.folder.glob('encoded/*') if path.is_dir()]
    assert len(folders) == number
  assert dict(open_corpus(config(copied), 'train')[:]) == TRAIN
  assert corpus.folder.is_relative_to(copied / NAME)


def test_a_set_from_a_stranger_runs_nothing(copied, tmp_path, monkeypatch):
  (tmp_path / 'planted.py').write_text(f'import os\nos.mkdir({str(tmp_path / "mark")!r})\n')
  monkeypatch.syspath_prepend(tmp_path)
  (copied / 'wmt14_translate').rename(copied / 'stranger')  # TFDS has no code for this name.
  for path in copied.rglob('dataset_info.json'):
    path.write_text(path.read_text('utf-8').replace('"wmt14_translate"', '"stranger"'), 'utf-8')
  for path in copied.rglob('*.array_record-*'):
    path.rename(path.with_name(path.name.replace('wmt14_translate', 'stranger')))
  stranger = config(copied, 'stranger/de-en')
  assert dict(open_corpus(stranger, 'train')[:]) == TRAIN
  for path in copied.rglob('features.json'):
    features = json.loads(path.read_text('utf-8'))
    features['pythonClassName'] = 'planted.Feature'
    path.write_text(json.dumps(features), 'utf-8')
  with pytest.raises(UserError, match=r"asks for 'planted.Feature' to be run"):
    open_corpus(stranger, 'train')
  assert not (tmp_path / 'mark').exists()


@pytest.mark.parametrize('name', [
    'kaggle:set', '../../etc', '/etc/passwd', 'a/b/c/d', 'set:1.0.0:2', 'x' * 10_000, '..', '.',
    'wmt14_translate/../../de-en', 'wmt14_translate/de-en:..'])
def test_a_name_that_is_none_is_refused(tmp_path, name):
  with pytest.raises(UserError) as error:
    open_corpus(config(tmp_path, name), 'train')
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('name', ['sets[1]', 'sets**', 'sets?'])
def test_a_folder_that_tfds_takes_for_a_pattern_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, name):
  monkeypatch.setattr(constants, 'DATA_DIR', str(tmp_path / name))
  for folder in (tmp_path / name, ''):
    with pytest.raises(UserError, match=r'pattern, .*rename the folder'):
      open_corpus(config(folder), 'train')
  assert not any(tmp_path.iterdir())
