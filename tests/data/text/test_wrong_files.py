"""A file that is not UTF-8 text is named as what it is, with the command that mends it."""

import bz2
import gzip
import io
import lzma
import shlex
import zipfile

import pytest

from tests.data.text.text_folder import open_text
from transformer.data.text.text_files import iterate_lines, read_lines
from transformer.errors import UserError

TEXT = ''.join(f'line {number} of a text\n' for number in range(60))


def zipped(data):
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('train.de', data)
  return file.getvalue()


@pytest.mark.parametrize(('encoding', 'text', 'named'), [
    ('utf-16-le', TEXT, 'UTF-16LE'), ('utf-16-be', TEXT, 'UTF-16BE'), ('utf-16', TEXT, 'UTF-16'),
    ('utf-16-le', 'über\n' + TEXT, 'UTF-16LE'), ('utf-16-be', 'über\n' + TEXT, 'UTF-16BE'),
    ('utf-16-le', '中文 字\n' * 9, 'UTF-16LE'), ('utf-16-be', '中文\n', 'UTF-16BE'),
    ('utf-16', '中文\n', 'UTF-16'), ('utf-32', TEXT, 'UTF-32')])
def test_another_encoding_is_named(tmp_path, encoding, text, named):
  path, wanted = tmp_path / 'train.de', rf'must be UTF-8; .*iconv -f {named} -t UTF-8$'
  path.write_bytes(text.encode(encoding))
  with pytest.raises(UserError, match=wanted):
    open_text(tmp_path, 'de', 'en')
  with pytest.raises(UserError, match=wanted):
    read_lines(path)
  with pytest.raises(UserError, match=wanted):
    list(iterate_lines(io.BytesIO(text.encode(encoding)), 'standard input'))


@pytest.mark.parametrize('text', ['a\0man\n\0\n\0\0 dog \0\n', '\0' * 99, '\0a', 'a\0b\0\n'])
def test_zeros_in_a_text_stay(tmp_path, text):
  (tmp_path / 'text').write_text(text, 'utf-8')
  assert read_lines(tmp_path / 'text') == text.removesuffix('\n').split('\n')


@pytest.mark.parametrize(('ending', 'data', 'command'), [
    ('.gz', gzip.compress(TEXT.encode()), 'gzip -dc'),
    ('.xz', lzma.compress(TEXT.encode()), 'xz -dc'),
    ('.bz2', bz2.compress(TEXT.encode()), 'bzip2 -dc'), ('.zip', zipped(TEXT), 'unzip -p'),
    ('.zst', bytes.fromhex('28b52ffd0458') + TEXT.encode(), 'zstd -dc')])
def test_a_compressed_file_says_so_whether_its_name_does_or_not(tmp_path, ending, data, command):
  wanted = rf'must be UTF-8; line 1 .* it is compressed, as {ending} files are; .* {command}$'
  (tmp_path / f'train.de{ending}').write_bytes(data)
  for corpus in (lambda: open_text(tmp_path, f'de{ending}', 'en'),
                 lambda: read_lines(tmp_path / f'train.de{ending}'),
                 lambda: list(iterate_lines(io.BytesIO(data), 'standard input'))):
    with pytest.raises(UserError, match=wanted):
      corpus()
  folder = tmp_path / "Ann's [1]"
  folder.mkdir()
  for name in ('train.en', 'other.en'):
    (folder / f'{name}{ending}').write_bytes(data)
  for corpus, name in ((lambda: open_text(folder, 'en', 'de'), 'train.en'),
                       (lambda: read_lines(folder / 'other.en'), 'other.en')):
    with pytest.raises(UserError, match=f'wanted the file .*{name}; .*{name}{ending} is there'
                       ) as error:
      corpus()
    shell = shlex.split(str(error.value).rpartition('unpack it: ')[2])
    assert shell == [*command.split(), f'{folder / name}{ending}', '>', str(folder / name)]
