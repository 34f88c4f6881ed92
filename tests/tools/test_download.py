"""The command downloads and prepares a TFDS dataset, or ends in one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import tensorflow_datasets as tfds

from transformer.data.config import DataConfig
from transformer.data.text.sources import open_corpus
from transformer.errors import UserError
from transformer.tools.download import prepare

NAME = 'wmt14_translate/de-en'


def config(folder, name=NAME) -> DataConfig:
  return DataConfig(
    source='tfds',
    tfds_name=name,
    dir=str(folder),
    source_language='de',
    target_language='en',
  )


def test_the_command_prepares_a_dataset_and_ends_in_a_line(write_wmt14, tmp_path):
  def run(*args):
    return subprocess.run(
      [sys.executable, '-W', 'error', '-m', 'transformer.tools.download', *args],
      capture_output=True,
      text=True,
    )

  write_wmt14(
    tmp_path,
    train=[(f'Satz {number}', f'sentence {number}') for number in range(37)],
    test=[('Satz', 'sentence')],
  )
  done = run(f'--name={NAME}', f'--data_dir={tmp_path}')
  assert done.returncode == 0, done.stderr
  assert (
    done.stdout.startswith(f'{NAME} is in {tmp_path}') and 'train 37' in done.stdout
  )
  failed = run('--name=wmt14_tranlate/de-en', f'--data_dir={tmp_path}')
  assert failed.returncode == 1 and failed.stdout == ''
  assert failed.stderr.startswith(
    'error: --name must name a TFDS translation dataset; there is no'
  )
  assert failed.stderr.count('\n') == 1


@pytest.fixture
def small_dataset(monkeypatch):
  """Returns the class of a TFDS dataset that writes seven pairs instead of downloading data."""
  cls = tfds.builder_cls('wmt14_translate')
  monkeypatch.setattr(
    cls, '_split_generators', lambda self, _: {'train': self._generate_examples()}
  )
  monkeypatch.setattr(
    cls,
    '_generate_examples',
    lambda self: enumerate({'de': f'der {i}', 'en': str(i)} for i in range(7)),
  )
  return cls


def test_a_dataset_is_prepared_once(small_dataset, tmp_path, monkeypatch, capfd):
  prepare(NAME, str(tmp_path))
  pairs = open_corpus(config(tmp_path), 'train')[:]
  assert sorted(pairs) == [(f'der {i}', str(i)) for i in range(7)]
  assert capfd.readouterr().out == ''
  monkeypatch.setattr(small_dataset, '_generate_examples', None)
  prepare(NAME, str(tmp_path))
  assert open_corpus(config(tmp_path), 'train')[:] == pairs


def test_a_folder_that_cannot_be_written_or_has_no_record_is_an_error(
  small_dataset, tmp_path
):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match=f'{NAME} could not be prepared in .*file: '):
    prepare(NAME, str(tmp_path / 'file'))
  prepare(NAME, str(tmp_path))
  (version,) = (tmp_path / NAME).iterdir()
  shutil.rmtree(version)
  version.mkdir()
  with pytest.raises(UserError, match=f'{NAME} but is incomplete; remove it and run: '):
    prepare(NAME, str(tmp_path))


@pytest.mark.parametrize(
  ('failure', 'message'),
  [
    (
      AssertionError('download\n it by  hand'),
      'could not be prepared in .*download it by hand',
    ),
    (
      tfds.download.DownloadError('HTTP 503'),
      'could not be prepared in .*: .*HTTP 503',
    ),
    (
      ModuleNotFoundError("No module named 'apache_beam'", name='apache_beam'),
      'could not be prepared in .*apache_beam',
    ),
    # While a file arrives, `requests` does not say which it is.
    (
      requests.exceptions.SSLError('bad record'),
      'cannot be downloaded: the server cannot be',
    ),
  ],
)
def test_a_failed_preparation_is_a_one_line_error(
  tmp_path, monkeypatch, failure, message
):
  def fail(self, _):
    raise failure

  monkeypatch.setattr(tfds.builder_cls('wmt14_translate'), '_split_generators', fail)
  with pytest.raises(UserError, match=message) as caught:
    prepare(NAME, str(tmp_path))
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('kind', ['gztar', 'zip'])
def test_archives_are_unpacked_without_tensorflow(tmp_path, monkeypatch, kind):
  text = tmp_path / 'text' / 'de-en.tsv'
  text.parent.mkdir()
  text.write_text('ein Käse\ta cheese\nzwei\ttwo\n', encoding='utf-8')
  archive = Path(shutil.make_archive(tmp_path / 'a', kind, tmp_path, 'text'))

  def split(self, downloads):
    lines = (
      (Path(downloads.extract(archive)) / 'text/de-en.tsv')
      .read_text('utf-8')
      .splitlines()
    )
    return {
      'train': enumerate(
        dict(zip(('de', 'en'), line.split('\t'), strict=True)) for line in lines
      )
    }

  monkeypatch.setattr(tfds.builder_cls('wmt14_translate'), '_split_generators', split)
  prepare(NAME, str(tmp_path / 'datasets'))
  assert sorted(open_corpus(config(tmp_path / 'datasets'), 'train')[:]) == [
    ('ein Käse', 'a cheese'),
    ('zwei', 'two'),
  ]
  assert 'tensorflow' not in sys.modules


def test_an_unknown_name_suggests_the_nearest(tmp_path):
  """The name is looked up in TFDS's own list before any download."""
  for name, message in (
    ('wmt14_tranlate/de-en', 'the nearest are wmt14_translate'),
    ('a b/c', 'must be like dataset/config'),
    ('wmt14_translate/xx-en', 'cannot be opened: .*xx-en not found'),
    (f'{NAME}:9.9.9', 'cannot be opened: '),
    ('mnist', 'mnist is not a translation dataset.* it has image, label'),
  ):
    with pytest.raises(UserError, match=message):
      prepare(name, str(tmp_path))
  assert not list(tmp_path.iterdir())


def test_without_a_network_a_preparation_ends_within_seconds(
  tmp_path, monkeypatch, caplog
):
  for scheme in ('http', 'https'):
    # Nothing listens there.
    monkeypatch.setenv(f'{scheme}_proxy', 'http://127.0.0.1:9')
  waits = []
  monkeypatch.setattr('time.sleep', waits.append)
  with pytest.raises(
    UserError,
    match=r'wmt14_translate/de-en cannot be downloaded: http\S+ cannot '
    r'be reached .*run: python -m transformer.tools.download',
  ):
    prepare(NAME, str(tmp_path))
  assert 0 < sum(wait for wait in waits if wait > 0.1) < 60
  assert 'Retrying' not in caplog.text
