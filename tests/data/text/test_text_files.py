"""Text files return the pairs that were written, from the disk, or an error of one line."""

import gzip
import io
import itertools
import os
import sys
import tempfile
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from transformer.data.config import DataConfig
from transformer.data.text import text_files
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import iterate_lines, read_lines
from transformer.errors import UserError

PACK = {'.gz': gzip.compress}
SOURCE = ''.join(f'{"ä€😀" * (i % 5)}{i}\n' for i in range(31)).encode()
TARGET = ''.join(f'{i} words\n' for i in range(31)).encode()


def config_of(folder, source='de', target='en') -> DataConfig:
  return DataConfig(
    source='text', dir=str(folder), source_language=source, target_language=target
  )


def write(folder, de: bytes = SOURCE, en: bytes = TARGET) -> DataConfig:
  (folder / 'train.de').write_bytes(de)
  (folder / 'train.en').write_bytes(en)
  return config_of(folder)


def open_text(folder, *content):
  return open_corpus(write(folder, *content), 'train')


@pytest.fixture
def small(monkeypatch):
  """Divides the lines of every file into many groups."""
  monkeypatch.setattr(text_files, '_EVERY', 3)


def test_pairs_are_line_aligned_and_in_order(tmp_path, monkeypatch):
  corpus = open_text(tmp_path, 'eins\n\nüber 😀\n'.encode(), b'one\nempty\nover\n')
  assert corpus[:] == [('eins', 'one'), ('', 'empty'), ('über 😀', 'over')]
  assert (
    len(corpus) == 3 and corpus.name == str(tmp_path / 'train') and corpus.notes == ()
  )
  assert open_corpus(config_of(tmp_path, 'en', 'de'), 'train')[:1] == [('one', 'eins')]
  monkeypatch.setenv('HOME', str(tmp_path))
  assert open_corpus(config_of('~'), 'train')[:] == corpus[:]
  assert read_lines('~/train.en') == ['one', 'empty', 'over']


@pytest.mark.parametrize('every', [1, 3, 7, 100])
def test_every_slice_is_what_its_pairs_are(tmp_path, monkeypatch, every):
  monkeypatch.setattr(text_files, '_EVERY', every)
  corpus = open_text(tmp_path, SOURCE[:-1])
  pairs = list(
    zip(SOURCE.decode().split('\n')[:-1], TARGET.decode().split('\n')[:-1], strict=True)
  )
  assert read_lines(tmp_path / 'train.de') == [source for source, _ in pairs]
  for start, stop in itertools.product(range(0, 34, 3), repeat=2):
    assert corpus[start:stop] == pairs[start:stop]
  assert (
    corpus[:] == pairs
    and corpus[-3:] == pairs[-3:]
    and corpus[: np.int64(5)] == pairs[:5]
  )
  with ThreadPoolExecutor(8) as pool:
    assert (
      list(pool.map(lambda place: corpus[place : place + 1][0], range(len(corpus))))
      == pairs
    )


@pytest.mark.parametrize(
  ('data', 'lines'),
  [
    (b'', []),
    (b'\n', ['']),
    (b'a', ['a']),
    (b'a\n', ['a']),
    (b'a\n\n', ['a', '']),
    (b'\n\na', ['', '', 'a']),
    (b'a\r\nb\r\n', ['a', 'b']),
    (b'a\r\nb', ['a', 'b']),
    (b'a\r\nb\n', ['a', 'b']),
    (b'\r\n\r\n', ['', '']),
    (b'a\r\r\n', ['a\r']),
    (b'a\rb', ['a\rb']),
    (b'\xef\xbb\xbfa\n', ['a']),
    (b'a\xef\xbb\xbf\n', ['a\ufeff']),
    (b'\xef\xbb\xbf', []),
    (
      'a\u2028b\u2029c\u0085d\re\vf\fg\x1ch\x00k\r\r\n '.encode(),
      ['a\u2028b\u2029c\u0085d\re\vf\fg\x1ch\x00k\r', ' '],
    ),
  ],
)
def test_the_line_rule(tmp_path, monkeypatch, data, lines):
  path = tmp_path / 'text'
  path.write_bytes(data)
  assert read_lines(path) == read_lines(str(path)) == lines
  monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(data)))
  assert read_lines('-') == lines
  assert list(iterate_lines(io.BytesIO(data), 'it')) == lines
  if lines:
    (tmp_path / 'text.de').write_bytes(data)
    (tmp_path / 'text.en').write_bytes(data)
    assert open_corpus(config_of(tmp_path), 'text')[:] == [
      (line, line) for line in lines
    ]


def test_odd_carriage_returns_are_logged(tmp_path):
  assert open_text(tmp_path, b'\xef\xbb\xbfeins\r\nzwei\r\n', b'one\nab\n').notes == ()
  (note,) = open_text(tmp_path, b'eins\nzwei\n', b'one\r\nt\rwo\n').notes
  assert 'train.en: its 2 lines contain 1 carriage returns' in note
  mac = (
    r'train\.de: its 1 lines contain 600 carriage returns; if CR ends a line, .* tr '
  )
  with pytest.raises(UserError, match=rf'train\.de has 1 lines, .* has 31; .*{mac}'):
    open_text(tmp_path, b'eins\r' * 600)


def test_the_fingerprint_follows_the_sentences_and_nothing_else(tmp_path, small):
  def fingerprint(de, en, *languages):
    write(tmp_path, de, en)
    return open_corpus(config_of(tmp_path, *languages), 'train').fingerprint

  plain = fingerprint(b'eins\nzwei\n', b'one\ntwo\n')
  assert plain == fingerprint(b'eins\nzwei', b'one\ntwo')
  assert plain == fingerprint(b'\xef\xbb\xbfeins\r\nzwei\r\n', b'one\r\ntwo\r\n')
  others = [
    fingerprint(b'eins\nzwei \n', b'one\ntwo\n'),
    fingerprint(b'eins\nzwei\n', b'one\ntwO'),
    fingerprint(b'eins\nzwei\n', b'one\ntwo\n', 'en', 'de'),
    fingerprint(b'zwei\neins\n', b'two\none\n'),
  ]
  assert len({plain, *others}) == 5
  # The fingerprint of earlier runs.
  assert fingerprint(
    'eins\r\nzwei 😀\r\nüber'.encode(), b'\xef\xbb\xbfone\n\ntwo\r'
  ) == ('a193aabaea24cc2e6e848eb29c2426192b2ea57d6e36a82d74661b42c64be132')
  assert fingerprint(
    b'eins\r\nzwei\r', b'one\ntwo\n'
  ) == (  # A final CR without LF ends no line.
    'b07b589b44e29521a066d26b195701780bc05419e0336a7da7aec2ab3aa3b744'
  )


@pytest.mark.parametrize('ending', PACK)
def test_compressed_text_is_the_same_text(tmp_path, monkeypatch, small, ending):
  plain = open_text(tmp_path)
  folder = tmp_path / 'packed'
  folder.mkdir()
  (folder / f'train.de{ending}').write_bytes(PACK[ending](SOURCE))
  # As cat joins such files.
  parts = (
    PACK[ending](TARGET[:100]),
    PACK[ending](TARGET[100:]),
  )
  (folder / f'train.en{ending}').write_bytes(b''.join(parts))
  monkeypatch.setenv('HOME', str(folder))
  with monkeypatch.context() as patch:
    patch.setattr(tempfile, 'tempdir', str(tmp_path))
    opened = len(os.listdir('/dev/fd'))
    corpus = open_corpus(config_of('~'), 'train')
    for path in folder.glob('train.*'):  # A file is unpacked once.
      path.write_bytes(b'')
    assert (
      corpus.fingerprint == plain.fingerprint
      and corpus.notes == ()
      and len(corpus) == 31
    )
    assert all(
      corpus[i:j] == plain[i:j] for i, j in itertools.product(range(0, 34, 3), repeat=2)
    )
    with ThreadPoolExecutor(8) as pool:
      slices = [slice(place % 31, place % 31 + 1) for place in range(310)]
      assert [pair for (pair,) in pool.map(corpus.__getitem__, slices)] == plain[:] * 10
    del corpus
    assert len(os.listdir('/dev/fd')) <= opened
  assert {path.name for path in tmp_path.iterdir()} == {
    'packed',
    'train.de',
    'train.en',
  }
  (folder / f'train.en{ending}').write_bytes(b''.join(parts))
  assert read_lines(f'~/train.en{ending}') == [target for _, target in plain[:]]


def test_of_several_forms_the_plain_one_is_read(tmp_path):
  write(tmp_path, b'one\n', b'one\n')
  for ending, pack in PACK.items():
    (tmp_path / f'train.de{ending}').write_bytes(pack(ending.encode()))
  for form in ('', '.gz'):
    corpus = open_corpus(config_of(tmp_path), 'train')
    assert corpus[:] == [(form or 'one', 'one')]
    (tmp_path / f'train.de{form}').unlink()


@pytest.mark.parametrize('ending', PACK)
def test_a_compressed_file_that_cannot_be_read_is_named(tmp_path, ending):
  path, whole = tmp_path / f'train.de{ending}', PACK[ending](SOURCE)
  (tmp_path / 'train.en').write_bytes(TARGET)
  wrong = whole[:20] + bytes([whole[20] ^ 255]) + whole[21:]
  for data in (b'no archive', whole[:-9], whole[:5], wrong):
    path.write_bytes(data)
    for read in (
      lambda: open_corpus(config_of(tmp_path), 'train'),
      lambda: read_lines(path),
    ):
      with pytest.raises(UserError, match=rf'^{path} cannot be decompressed; [^\n]*$'):
        read()


@pytest.mark.parametrize(
  ('data', 'line', 'byte'),
  [
    (b'one\ntwo\n\nstra\xdfe\nfive\n', 4, 0xDF),
    ('line\n'.encode('utf-16'), 1, 0xFF),
    (gzip.compress(b'one', mtime=0), 1, 0x8B),
  ],
)
def test_text_that_is_not_utf8_is_located(tmp_path, data, line, byte):
  message = (
    rf'must be UTF-8; line {line} is not, at the byte 0x{byte:02x}; .* \.gz; '
    rf'.* iconv'
  )
  with pytest.raises(UserError, match=rf'train\.de {message}'):
    open_text(tmp_path, data)
  lines = iterate_lines(io.BytesIO(data), 'it')
  assert len([next(lines) for _ in range(line - 1)]) == line - 1
  with pytest.raises(UserError, match=f'it {message}'):
    next(lines)


def test_utf16_without_a_mark_is_rejected_though_it_is_valid_utf8(tmp_path):
  with pytest.raises(
    UserError, match=r'train\.de must be UTF-8; it is full of zero bytes.* iconv'
  ):
    open_text(tmp_path, 'two men\nwalk\n'.encode('utf-16-le'))


def test_a_missing_file_lists_the_existing_files(tmp_path):
  for name in ('train.de.gz', 'train.en', *'abcdef'):
    (tmp_path / name).write_bytes(b'x\n')
  (tmp_path / 'bare').mkdir()
  for path, fact in (
    (tmp_path / 'train.de', r'contains train.*train\.de\.gz, '),
    (tmp_path / 'nowhere' / 'train.de', 'there is no folder .*nowhere'),
    (tmp_path / 'bare' / 'train.de', 'bare contains no files'),
  ):
    with pytest.raises(UserError, match=rf'train\.de cannot be opened: .*{fact}'):
      read_lines(path)
  with pytest.raises(UserError, match='Is a directory'):
    read_lines(tmp_path)


def test_unequal_or_no_lines_are_an_error_unless_they_are_looked_for(tmp_path):
  with pytest.raises(UserError, match=r'train\.de has 2 lines, .*train\.en has 3'):
    open_text(tmp_path, b'a\nb\n', b'a\nb\nc\n')
  corpus = text_files.TextCorpus(config_of(tmp_path), 'train', aligned=False)
  assert corpus.lines == (2, 3) and corpus[:] == [('a', 'a'), ('b', 'b')]
  with pytest.raises(UserError, match=r'at least one pair; .* is empty'):
    open_text(tmp_path, b'', b'')


@pytest.mark.parametrize('packed', [False, True])
def test_opening_a_corpus_does_not_hold_its_text(tmp_path, packed):
  line = b'a line of about forty bytes, and no more\n'
  write(tmp_path, line * 100_000, line * 100_000)  # 4 MB each.
  if packed:
    for name in ('train.de', 'train.en'):
      (tmp_path / f'{name}.gz').write_bytes(
        gzip.compress((tmp_path / name).read_bytes(), 1)
      )
      (tmp_path / name).unlink()
  tracemalloc.start()
  try:
    corpus = open_corpus(config_of(tmp_path), 'train')
    assert corpus[99_999:] == [(line[:-1].decode(),) * 2]
    held, most = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert most < 2e6 and held < 2e5


def test_a_change_of_size_or_time_or_file_is_noticed(tmp_path):
  path = tmp_path / 'train.en'
  write(tmp_path)
  times = path.stat().st_atime_ns, path.stat().st_mtime_ns

  def change(word, place=path):
    place.write_bytes(TARGET.replace(b'words', word))
    os.utime(place, ns=times)

  def replaced():
    change(b'wORDS', tmp_path / 'other')
    (tmp_path / 'other').replace(path)

  # The last keeps size and time, as rsync --inplace --times does.
  for changed in (lambda: change(b'wordss'), replaced, lambda: change(b'wOrDs')):
    change(b'words')
    corpus = open_corpus(config_of(tmp_path), 'train')
    # Longer than the clock of a file system takes from one time to the next.
    time.sleep(0.02)
    changed()
    with pytest.raises(
      UserError, match=r'train\.en was changed while it was being read'
    ):
      corpus[:1]
