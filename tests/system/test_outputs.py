"""Files that flags name are checked before the work, and written whole."""

import os
import threading
from pathlib import Path

import pytest

from transformer.cli.request import check_output
from transformer.errors import UserError
from transformer.system import outputs


def test_a_file_is_replaced_and_folders_are_made(tmp_path):
  path, link = tmp_path / 'new/folder/out.txt', tmp_path / 'link'
  link.symlink_to(path)
  for named in (path, link):
    for content in (b'first', b'2'):
      outputs.check_file('output', named)
      outputs.write(named, content)
      assert path.read_bytes() == content
  assert link.is_symlink() and [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize('name', ['out.de.gz', 'out.GZ', 'out.zst'])
def test_an_output_with_a_compressed_ending_is_rejected(tmp_path, name):
  with pytest.raises(UserError, match='--output is written uncompressed'):
    check_output(f'{tmp_path}/{name}', [])


def test_a_pipe_or_a_device_gets_the_content_and_is_not_replaced(tmp_path):
  path, contents = tmp_path / 'pipe', []
  os.mkfifo(path)
  reader = threading.Thread(target=lambda: contents.append(path.read_bytes()))
  reader.start()
  outputs.check_file('output', path)
  outputs.write(path, b'content')
  reader.join()
  assert contents == [b'content'] and path.is_fifo()
  outputs.check_file('output', Path('/dev/null'))
  outputs.write(Path('/dev/null'), b'content')
  assert Path('/dev/null').is_char_device()
  with pytest.raises(
    UserError, match='/dev/full cannot be written: No space left on device'
  ):
    outputs.write(Path('/dev/full'), b'content')


def test_an_unwritable_output_is_rejected_before_the_work(tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('mine')
  (tmp_path / 'kept').write_text('mine')
  access = os.access
  # Root may write everywhere.
  monkeypatch.setattr(
    os, 'access', lambda path, mode: Path(path).name != 'kept' and access(path, mode)
  )
  for path, fact in (
    ('.', '--output must name a file to write to; .* is a directory'),
    ('file/under', '--output needs a directory to write to; .*file is a file'),
    ('kept', '--output must name a file to write to; .*kept is .* may not be'),
  ):
    with pytest.raises(UserError, match=fact):
      outputs.check_file('output', tmp_path / path)
  with pytest.raises(
    UserError, match=r'--workdir needs a directory; got --check; write '
  ):
    outputs.check_folder('workdir', Path('--check'))


def test_an_input_as_output_is_rejected_under_any_name(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  file, other = tmp_path / 'file', tmp_path / 'other'
  file.write_text('mine')
  other.write_text('mine')
  (tmp_path / 'linked').symlink_to(file)
  os.link(file, tmp_path / 'hard')
  for name in ('file', 'linked', 'hard', tmp_path / '..' / tmp_path.name / 'file'):
    for inputs in ([file], [other, 'file'], ['nowhere', 'hard']):
      with pytest.raises(UserError, match=r'--output=.* would overwrite'):
        outputs.check_not_input('output', Path(name), inputs)
  outputs.check_not_input('output', other, [file, 'nowhere'])
  outputs.check_not_input('output', tmp_path / 'new', [file])
  outputs.check_not_input('output', Path(os.devnull), [os.devnull])
