"""TFDS datasets return the pairs that were written, or an error of one line."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from transformer.data.config import DataConfig
from transformer.data.encoded_cache import load_or_encode
from transformer.data.text.sources import open_corpus
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

NAME = 'wmt14_translate/de-en'
TRAIN = {
  f'Satz {i}: Straße\u2028 \x00 {"sehr " * i}': f'sentence {i}' for i in range(37)
}


def config(folder, name=NAME, source='de', target='en') -> DataConfig:
  return DataConfig(
    tfds_name=name, dir=str(folder), source_language=source, target_language=target
  )


@pytest.fixture(scope='module')
def prepared(tmp_path_factory, write_wmt14):
  folder = tmp_path_factory.mktemp('prepared')
  write_wmt14(folder, train=TRAIN.items(), test=list(TRAIN.items())[:5])
  return folder


@pytest.fixture
def copied(prepared, tmp_path):
  return shutil.copytree(prepared, tmp_path / 'copied')


def test_a_prepared_dataset_is_read_by_its_name_and_numbers(prepared, monkeypatch):
  corpus = open_corpus(config(prepared), 'train')
  pairs = corpus[:]
  assert dict(pairs) == TRAIN and len(corpus) == len(TRAIN)
  assert corpus.name == f'{NAME}:train' and corpus.notes == ()
  for start, stop in (
    (0, None),
    (3, 11),
    (30, 99),
    (37, 57),
    (9, 5),
    (-2, None),
    (np.int64(3), 4),
  ):
    assert corpus[start:stop] == pairs[start:stop]
  flipped = open_corpus(config(prepared, source='en', target='de'), 'train')
  assert flipped[3:4] == [corpus[3:4][0][::-1]]
  assert len(open_corpus(config(prepared), 'train[:10]+test')) == 15
  with ThreadPoolExecutor(8) as pool:
    fresh = open_corpus(config(prepared), 'train')  # The first read opens its files.
    assert (
      list(pool.map(lambda place: fresh[place : place + 1][0], range(len(fresh))))
      == pairs
    )
  monkeypatch.setenv('HOME', str(prepared.parent))
  assert dict(open_corpus(config(f'~/{prepared.name}'), 'train')[:]) == TRAIN


def test_the_fingerprint_of_a_dataset(prepared, tmp_path, write_wmt14):
  def fingerprint(folder, split='train', *languages):
    return open_corpus(config(folder, NAME, *languages), split).fingerprint

  plain = fingerprint(prepared)
  for name, examples in (
    ('again', TRAIN.items()),
    ('longer', [*TRAIN.items(), ('mehr', 'more')]),
    ('other', [(de, f'{en}.') for de, en in TRAIN.items()]),
  ):
    write_wmt14(tmp_path / name, train=examples, test=list(examples)[:5])
  assert (
    plain
    == fingerprint(tmp_path / 'again')
    == (  # The fingerprint of earlier runs.
      '14024741cdd7ae4d8ada21684a39c17cc8685836d9af5a2b4ef472954889a9fe'
    )
  )
  others = [
    fingerprint(tmp_path / 'longer'),
    fingerprint(tmp_path / 'other'),
    fingerprint(prepared, 'test'),
    fingerprint(prepared, 'train[:5]'),
    fingerprint(prepared, 'train', 'en', 'de'),
  ]
  assert len({plain, *others}) == 6


@pytest.mark.parametrize(
  'name',
  [
    'a b/c',
    'huggingface:opus',
    '',
    '../../etc',
    '/etc/passwd',
    'x' * 10_000,
    'wmt14_translate/xx-en',
    f'{NAME}:9.9.9',
  ],
)
def test_a_name_of_no_prepared_dataset_is_a_one_line_error(prepared, name):
  with pytest.raises(
    UserError, match=r'the name of a TFDS dataset must be like|is not prepared'
  ) as caught:
    open_corpus(config(prepared, name), 'train')
  assert '\n' not in str(caught.value)


def test_a_dataset_that_is_not_prepared_says_what_to_do(tmp_path):
  folder = tmp_path / 'with space'
  with pytest.raises(UserError) as caught:
    open_corpus(config(folder), 'train')
  assert f'is not prepared in {folder}; prepare it as docs/data.md says' in str(
    caught.value
  )
  assert not folder.exists()


def test_a_dataset_that_can_only_be_streamed_or_lacks_a_file_is_an_error(copied):
  info = copied / NAME / '1.0.0' / 'dataset_info.json'
  whole = info.read_text()
  info.write_text(json.dumps(json.loads(whole) | {'fileFormat': 'tfrecord'}))
  with pytest.raises(
    UserError, match=rf'{info.parent} in the FileFormat.TFRECORD format'
  ):
    open_corpus(config(copied), 'train')
  info.write_text(whole)
  shard = info.parent / 'wmt14_translate-train.array_record-00000-of-00001'
  shard.unlink()
  with pytest.raises(UserError, match=f'No such file or directory; opening {shard}'):
    open_corpus(config(copied), 'train')


def test_a_missing_split_or_language_says_which_there_are(prepared):
  for split in ('validation', 'validation[:3]', 'train['):
    with pytest.raises(UserError, match=r'cannot be opened: .*split'):
      open_corpus(config(prepared), split)
  with pytest.raises(UserError, match=r'languages de and fr; it has (de, en|en, de)'):
    open_corpus(config(prepared, target='fr'), 'train')


def rename(folder, name):
  """Renames a prepared dataset."""
  (folder / 'wmt14_translate').rename(folder / name)
  version = folder / name / 'de-en/1.0.0'
  for shard in version.glob('wmt14*'):
    shard.rename(version / shard.name.replace('wmt14_translate', name))
  info = version / 'dataset_info.json'
  info.write_text(json.dumps(json.loads(info.read_text()) | {'name': name}))


def test_datasets_of_other_code_and_older_versions_are_read_from_their_files(
  copied, prepared
):
  shutil.copytree(copied, copied.parent / 'older')
  older = copied.parent / 'older'
  (older / NAME / '1.0.0').rename(older / NAME / '0.0.9')
  info = older / NAME / '0.0.9' / 'dataset_info.json'
  info.write_text(json.dumps(json.loads(info.read_text()) | {'version': '0.0.9'}))
  rename(copied, 'our_own')
  for folder, name in (
    (copied, 'our_own/de-en'),
    (copied, 'our_own/de-en:1.0.0'),
    (older, NAME),
    (older, f'{NAME}:0.0.9'),
  ):
    corpus = open_corpus(config(folder, name), 'train')
    assert dict(corpus[:]) == TRAIN
    assert corpus.fingerprint != open_corpus(config(prepared), 'train').fingerprint


def test_text_needs_no_tfds_and_a_dataset_neither_tensorflow_nor_jax(prepared):
  code = (
    'import sys; from transformer.data.text.sources import open_corpus; '
    'from transformer.data.config import DataConfig; '
    'assert "tensorflow_datasets" not in sys.modules; '
    f'assert len(open_corpus({config(prepared)!r}, "train")) == 37; '
    'assert not {"tensorflow", "jax"} & set(sys.modules)'
  )
  subprocess.run([sys.executable, '-c', code], check=True)


def test_an_encoding_is_stored_in_its_dataset_and_deleted_with_it(copied):
  vocabulary = Vocabulary.train([side for pair in TRAIN.items() for side in pair], 300)
  for source, target, split, number in (
    ('de', 'en', 'train', 1),
    ('de', 'en', 'train', 1),
    ('en', 'de', 'test', 2),
  ):
    corpus = open_corpus(config(copied, source=source, target=target), split)
    encoded, _ = load_or_encode(corpus, vocabulary)
    assert [vocabulary.decode(encoded[i]) for i in range(len(encoded))] == [
      pair[0] for pair in corpus[:]
    ]
    folders = [path for path in corpus.folder.glob('encoded/*') if path.is_dir()]
    assert len(folders) == number
  assert dict(open_corpus(config(copied), 'train')[:]) == TRAIN
  assert corpus.folder.is_relative_to(copied / NAME)


def test_a_dataset_from_a_stranger_runs_nothing(copied, tmp_path, monkeypatch):
  (tmp_path / 'planted.py').write_text(
    f'import os\nos.mkdir({str(tmp_path / "mark")!r})\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  (copied / NAME.partition('/')[0]).rename(copied / 'stranger')
  for path in copied.rglob('features.json'):
    features = json.loads(path.read_text('utf-8'))
    features['pythonClassName'] = 'planted.Feature'
    path.write_text(json.dumps(features), 'utf-8')
  with pytest.raises(UserError, match=r"dataset requires 'planted.Feature'"):
    open_corpus(config(copied, 'stranger/de-en'), 'train')
  assert not (tmp_path / 'mark').exists()
