"""Files that flags name are checked before the work, and written whole."""

import os
import threading
from pathlib import Path

import pytest

from transformer.errors import UserError
from transformer.system import outputs


def test_a_file_is_replaced_and_folders_are_made(tmp_path):
  path = tmp_path / 'new/folder/out.txt'
  for content in (b'first', b'2'):
    outputs.check_file('output', path)
    outputs.write(path, content)
    assert path.read_bytes() == content
  assert [each.name for each in path.parent.iterdir()] == ['out.txt']


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path):
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'link').symlink_to('folder/file')
  for content in (b'first', b'second'):
    outputs.check_file('output', tmp_path / 'link')
    outputs.write(tmp_path / 'link', content)
    assert (tmp_path / 'link').is_symlink()
    assert (tmp_path / 'folder/file').read_bytes() == content


def test_a_file_keeps_its_permissions(tmp_path):
  (tmp_path / 'file').write_text('before')
  (tmp_path / 'file').chmod(0o600)
  outputs.write(tmp_path / 'file', b'after')
  assert (tmp_path / 'file').stat().st_mode & 0o777 == 0o600


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path):
  path, got = tmp_path / 'pipe', []
  os.mkfifo(path)
  reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
  reader.start()
  outputs.check_file('output', path)
  outputs.write(path, b'content')
  reader.join()
  assert got == [b'content'] and path.is_fifo()


def test_a_device_stays_a_device():
  outputs.check_file('output', Path('/dev/null'))
  outputs.write(Path('/dev/null'), b'content')
  assert Path('/dev/null').is_char_device()


@pytest.mark.parametrize(('path', 'fact'), [
    ('.', '--output must name a file; .* is a directory'),
    ('file/under', '--output needs a directory; .*file is a file'),
    ('kept', '--output must name a file to write to; .*kept may not be written to')])
def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, path, fact):
  (tmp_path / 'file').write_text('mine')
  (tmp_path / 'kept').write_text('mine')
  access = os.access
  monkeypatch.setattr(os, 'access', lambda each, mode: (
      Path(each).name != 'kept' and access(each, mode)))  # root may write everywhere.
  with pytest.raises(UserError, match=fact):
    outputs.check_file('output', tmp_path / path)


def test_a_flag_in_place_of_a_folder_is_refused():
  with pytest.raises(UserError, match=r'--workdir needs a directory; got --check; write '):
    outputs.check_folder('workdir', Path('--check'))


def test_a_device_that_is_full_is_named():
  with pytest.raises(UserError, match='/dev/full cannot be written: No space left on device'):
    outputs.write(Path('/dev/full'), b'content')
