"""Text files return the pairs that were written, or an error of one line."""

import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from transformer.data.config import DataConfig
from transformer.data.text import text_files
from transformer.data.text.sources import open_corpus
from transformer.data.text.text_files import read_lines
from transformer.errors import UserError


def text_config(folder, source='de', target='en') -> DataConfig:
  return DataConfig(source='text', dir=str(folder), source_language=source, target_language=target)


def write_pair(folder, de: bytes, en: bytes) -> DataConfig:
  (folder / 'train.de').write_bytes(de)
  (folder / 'train.en').write_bytes(en)
  return text_config(folder)


def test_pairs_are_line_aligned_and_in_order(tmp_path):
  corpus = open_corpus(write_pair(tmp_path, 'eins\n\nüber 😀\n'.encode(), b'one\nempty\nover\n'),
                       'train')
  assert corpus[:] == [('eins', 'one'), ('', 'empty'), ('über 😀', 'over')]
  assert len(corpus) == 3 and corpus[np.int64(2):] == [('über 😀', 'over')]
  assert corpus.name == str(tmp_path / 'train') and corpus.notes == ()
  flipped = open_corpus(text_config(tmp_path, 'en', 'de'), 'train')
  assert flipped[:1] == [('one', 'eins')]
  assert corpus[3:] == [] and corpus[-1:] == corpus[2:9]


def test_only_a_line_feed_ends_a_line(tmp_path):
  line = 'a\u2028b\u2029c\u0085d\re\vf\fg\x1ch\x1di\x1ej\x00k\r\r'
  corpus = open_corpus(write_pair(tmp_path, f'{line}\n \n'.encode(), b'x\n\ty '), 'train')
  assert corpus[:] == [(line, 'x'), (' ', '\ty ')]


@pytest.mark.parametrize(('data', 'lines'), [
    (b'', []), (b'\n', ['']), (b'a', ['a']), (b'a\n', ['a']), (b'a\n\n', ['a', '']),
    (b'\n\na', ['', '', 'a']), (b'a\r\nb\r\n', ['a', 'b']), (b'a\r\nb', ['a', 'b']),
    (b'a\r\nb\n', ['a\r', 'b']), (b'\r\n\r\n', ['', '']), (b'a\r\r\n', ['a\r']),
    (b'a\rb', ['a\rb']), (b'\xef\xbb\xbfa\n', ['a']), (b'a\xef\xbb\xbf\n', ['a\ufeff']),
    (b'\xef\xbb\xbf', []),
])
def test_the_line_rule(tmp_path, monkeypatch, data, lines):
  path = tmp_path / 'text'
  path.write_bytes(data)
  assert read_lines(path) == lines
  assert read_lines(str(path)) == lines
  monkeypatch.setattr(sys, 'stdin', path.open('rb'))
  with sys.stdin:
    monkeypatch.setattr(sys.stdin, 'buffer', sys.stdin, raising=False)
    assert read_lines('-') == lines


def test_lines_do_not_depend_on_how_a_file_is_cut(tmp_path, monkeypatch):
  path = tmp_path / 'text'
  text = ''.join(f'{"ä€😀" * (i % 5)}{i}\n' for i in range(99))
  path.write_text(text, encoding='utf-8', newline='')
  for chunk in (1, 2, 7, 64, 10_000):
    monkeypatch.setattr(text_files, '_CHUNK', chunk)
    assert read_lines(path) == text.split('\n')[:-1]


def test_notes_say_what_was_changed(tmp_path):
  config = write_pair(tmp_path, b'\xef\xbb\xbfeins\r\nzwei\r\n', b'one\r\ntwo\n')
  corpus = open_corpus(config, 'train')
  assert corpus[:] == [('eins', 'one\r'), ('zwei', 'two')]
  mark, removed, kept = corpus.notes
  assert 'train.de' in mark and 'byte order mark' in mark
  assert 'train.de: all 2 lines ended in CRLF; the CR was removed' in removed
  assert 'train.en: 1 of 2 lines ended in CRLF; the CR was kept' in kept
  assert "sed 's/\\r$//' removes it" in kept


def test_a_file_whose_lines_end_in_cr_is_named(tmp_path, caplog, monkeypatch):
  mac = 'only LF ends a line, so 600 CR are in 1 lines; if CR ends a line, .* tr '
  config = write_pair(tmp_path, b'eins\r' * 600, b'one\n' * 600)
  with pytest.raises(UserError, match=rf'train\.de has 1 lines, .* has 600; .*train\.de: {mac}'):
    open_corpus(config, 'train')
  (tmp_path / 'train.en').write_bytes(b'one\r' * 600)
  notes = open_corpus(config, 'train').notes
  assert len(notes) == 2 and all(re.search(mac, note) for note in notes)
  with caplog.at_level('WARNING'):
    assert len(read_lines(tmp_path / 'train.de')) == 1
  assert re.search(mac, caplog.text)
  (tmp_path / 'train.de').write_bytes(b'eins\r1\nzwei\n')  # Text with a carriage return in it.
  assert open_corpus(config, 'train', aligned=False).notes == notes[1:]
  monkeypatch.setattr(text_files, '_CHUNK', 7)
  (tmp_path / 'train.de').write_bytes(b'eins\r1\n' * 9)
  assert '9 CR are in 9 lines' in open_corpus(config, 'train', aligned=False).notes[0]


def test_the_fingerprint_follows_the_sentences_and_nothing_else(tmp_path):
  def fingerprint(name, de, en, *languages):
    (tmp_path / name).mkdir(exist_ok=True)
    write_pair(tmp_path / name, de, en)
    return open_corpus(text_config(tmp_path / name, *languages), 'train').fingerprint

  plain = fingerprint('a', b'eins\nzwei\n', b'one\ntwo\n')
  assert len(plain) == 64
  assert plain == fingerprint('b', b'eins\nzwei', b'one\ntwo')
  assert plain == fingerprint('c', b'\xef\xbb\xbfeins\r\nzwei\r\n', b'one\r\ntwo\r\n')
  others = [fingerprint('d', b'eins\nzwei \n', b'one\ntwo\n'),
            fingerprint('e', b'eins\nzwei\n', b'one\ntwO\n'),
            fingerprint('f', b'eins\nzwei\n', b'one\ntwo\n', 'en', 'de'),
            fingerprint('g', b'zwei\neins\n', b'two\none\n')]
  assert len({plain, *others}) == 5


def test_text_that_is_not_utf8_is_located(tmp_path, monkeypatch):
  config = write_pair(tmp_path, b'one\ntwo\n\nstra\xdfe\nfive\n', b'a\nb\nc\nd\ne\n')
  for chunk in (1, 1_000):
    monkeypatch.setattr(text_files, '_CHUNK', chunk)
    with pytest.raises(UserError, match=r'train\.de must be UTF-8; line 4 is not.* 0xdf'):
      open_corpus(config, 'train')


def test_a_missing_file_says_what_is_there(tmp_path):
  for name in ('training.de', 'train.en', 'valid.de', *'abcdef'):
    (tmp_path / name).write_bytes(b'x\n')
  with pytest.raises(UserError, match=r'wanted the file .*train\.de; .* holds train\.en, training'
                                      r'\.de, .* and 4 others'):
    open_corpus(text_config(tmp_path), 'train')
  with pytest.raises(UserError, match=r'wanted the file .*; there is no folder .*nowhere'):
    read_lines(tmp_path / 'nowhere' / 'train.de')
  (tmp_path / 'bare').mkdir()
  with pytest.raises(UserError, match=r'wanted the file .*; there are no files in .*bare'):
    read_lines(tmp_path / 'bare' / 'train.de')
  with pytest.raises(UserError, match='cannot be read: Is a directory'):
    read_lines(tmp_path)


@pytest.mark.parametrize('source', ['text', 'tfds'])
@pytest.mark.parametrize('flag', [{}, {'dir_flag': '--data_dir'}])
def test_data_that_is_gone_says_which_flag_moves_it(tmp_path, source, flag):
  config = DataConfig(source=source, name='wmt14_translate/de-en', dir=f'{tmp_path}/gone',
                      source_language='en', target_language='de')
  hint = f'give {flag.get("dir_flag", "--config.data.dir")}=DIR'
  with pytest.raises(UserError, match=f'{tmp_path}/gone.*; if the data lies elsewhere, {hint}$'):
    open_corpus(config, 'train', **flag)
  (tmp_path / 'gone').mkdir()
  with pytest.raises(UserError) as caught:
    open_corpus(config, 'train', **flag)
  assert hint not in str(caught.value)


def test_unequal_lengths_give_both_counts(tmp_path):
  with pytest.raises(UserError, match=r'train\.de has 2 lines, .*train\.en has 3'):
    open_corpus(write_pair(tmp_path, b'a\nb\n', b'a\nb\nc\n'), 'train')


def test_an_empty_corpus_is_an_error(tmp_path):
  with pytest.raises(UserError, match=r'at least one pair; .*train\.de and .*train\.en are empty'):
    open_corpus(write_pair(tmp_path, b'', b''), 'train')


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  write_pair(tmp_path, b'eins\n', b'one\n')
  assert open_corpus(text_config('~'), 'train')[:] == [('eins', 'one')]
  assert read_lines('~/train.en') == ['one']


def test_a_corpus_is_picklable_and_read_by_threads(tmp_path):
  corpus = open_corpus(write_pair(tmp_path, b'eins\nzwei\n' * 50, b'one\ntwo\n' * 50), 'train')
  expected = corpus[:]
  assert sorted(expected) == sorted([('eins', 'one'), ('zwei', 'two')] * 50)
  assert pickle.loads(pickle.dumps(corpus))[:] == expected
  with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(lambda place: corpus[place:place + 1][0], range(len(corpus)))) == expected


def test_text_files_need_no_tfds(tmp_path):
  config = write_pair(tmp_path, b'eins\n', b'one\n')
  code = ('import sys; from transformer.data.text.sources import open_corpus; '
          'from transformer.data.config import DataConfig; '
          f'assert len(open_corpus({config!r}, "train")) == 1; '
          'assert "tensorflow_datasets" not in sys.modules')
  subprocess.run([sys.executable, '-c', code], check=True)
