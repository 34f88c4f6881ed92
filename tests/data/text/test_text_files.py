"""Text stays on disk, and is read by the numbers of its lines."""

import io
import itertools
import os
import tracemalloc

import numpy as np
import pytest

from tests.data.text.text_folder import open_text
from transformer.data.text import text_files
from transformer.data.text.text_files import iterate_lines, read_lines
from transformer.errors import UserError

SOURCE = ''.join(f'{"ä€😀" * (i % 5)}{i}\n' for i in range(31)).encode()
TARGET = ''.join(f'{i} words\n' for i in range(31)).encode()


@pytest.fixture(autouse=True)
def small(monkeypatch):
  """Makes the lines of every file lie in many groups, and in many chunks."""
  monkeypatch.setattr(text_files, '_EVERY', 3)
  monkeypatch.setattr(text_files, '_CHUNK', 37)


def write(folder, source=SOURCE, target=TARGET):
  (folder / 'train.de').write_bytes(source)
  (folder / 'train.en').write_bytes(target)


def corpus_in(folder):
  return open_text(folder, 'de', 'en')





@pytest.mark.parametrize('every', [1, 2, 3, 7, 31, 100])
@pytest.mark.parametrize('chunk', [1, 37, 10_000])
def test_every_slice_is_what_its_pairs_are(tmp_path, monkeypatch, every, chunk):
  monkeypatch.setattr(text_files, '_EVERY', every)
  monkeypatch.setattr(text_files, '_CHUNK', chunk)
  write(tmp_path, SOURCE[:-1])
  corpus = corpus_in(tmp_path)
  pairs = list(zip(SOURCE.decode().split('\n')[:-1], TARGET.decode().split('\n')[:-1],
                   strict=True))
  assert corpus[:] == pairs
  for start, stop in itertools.product(range(34), repeat=2):
    assert corpus[start:stop] == pairs[start:stop]
  assert corpus[-3:] == pairs[-3:] and corpus[:np.int64(5)] == pairs[:5]
  for step in (-1, 2):
    with pytest.raises(ValueError, match=f'got a step of {step}'):
      corpus[::step]


def test_opening_a_corpus_does_not_hold_its_text(tmp_path, monkeypatch):
  monkeypatch.undo()
  monkeypatch.setattr(text_files, '_CHUNK', 1 << 16)
  line = b'a line of about forty bytes, and no more\n'
  write(tmp_path, line * 200_000, line * 200_000)  # 8 MB each.
  tracemalloc.start()
  try:
    corpus = corpus_in(tmp_path)
    assert corpus[199_999:] == [(line[:-1].decode(),) * 2]
    held, most = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert most < 2e6 and held < 2e5


def test_the_fingerprint_is_that_of_earlier_runs(tmp_path):
  write(tmp_path, 'eins\r\nzwei 😀\r\nüber'.encode(), b'\xef\xbb\xbfone\r\n\ntwo\r')
  assert (corpus_in(tmp_path).fingerprint
          == 'aa01fe3fa2c67e63d0ead91bc3dd011bf702341688e0cca53c1430ca2f298005')



def test_a_change_of_size_or_time_or_file_is_noticed(tmp_path):
  path = tmp_path / 'train.en'
  write(tmp_path)
  times = path.stat().st_atime_ns, path.stat().st_mtime_ns

  def same_size(word):
    path.write_bytes(TARGET.replace(b'words', word))

  def longer():
    path.write_bytes(TARGET.replace(b'words', b'wordss'))
    os.utime(path, ns=times)

  def later():
    same_size(b'WORDS')
    os.utime(path, ns=(times[0], times[1] + 1))

  def replaced():
    other = tmp_path / 'other'
    other.write_bytes(TARGET.replace(b'words', b'wORDS'))
    os.utime(other, ns=times)
    other.replace(path)

  def in_place():
    same_size(b'wOrDs')
    os.utime(path, ns=times)  # As rsync --inplace --times does.

  for change in (longer, later, replaced, in_place):
    same_size(b'words')
    os.utime(path, ns=times)
    corpus = corpus_in(tmp_path)
    change()
    with pytest.raises(UserError, match=r'train\.en was changed while it was being read'):
      corpus[:1]


def test_text_that_changes_while_it_is_opened_is_refused(tmp_path, monkeypatch):
  survey = text_files._survey

  def overtaken(file, name):
    found = survey(file, name)
    write(tmp_path, SOURCE + b'more\n', TARGET)
    return found

  write(tmp_path)
  monkeypatch.setattr(text_files, '_survey', overtaken)
  with pytest.raises(UserError, match=r'train\.de was changed while it was being read'):
    corpus_in(tmp_path)


@pytest.mark.parametrize(('content', 'lines'), [
    (b'', []), (b'a', ['a']), (b'a\n', ['a']), (b'\n\n', ['', '']),
    ('\ufeffa\nü\u2028b\r\n'.encode(), ['a', 'ü\u2028b\r']), (b'a\r\nb\r\n', ['a', 'b']),
    (b'a\r\nb\nc\r\r\n', ['a', 'b', 'c\r'])])
def test_lines_that_come_one_by_one_are_those_of_a_file(content, lines, tmp_path):
  assert list(iterate_lines(io.BytesIO(content), 'it')) == lines
  if b'b\nc' not in content:  # The first line's end is not the end of all lines.
    (tmp_path / 'file').write_bytes(content)
    assert read_lines(tmp_path / 'file') == lines


def test_a_line_that_is_not_utf8_is_named_after_those_before_it():
  lines = iterate_lines(io.BytesIO('a\nü\n'.encode() + b'\xfc\n'), 'it')
  assert [next(lines), next(lines)] == ['a', 'ü']
  with pytest.raises(UserError, match='it must be UTF-8; line 3 is not, at the byte 0xfc'):
    next(lines)
