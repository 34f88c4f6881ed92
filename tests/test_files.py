"""A write is all or nothing, and a sealed file reveals every changed byte."""

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from transformer import files
from transformer.errors import UserError

VALUE = {
  'seed': 7,
  'dir': 'größe',
  'train': ['a', '\udcff\u2028"\\'],
  'none': None,
  'share': 0.1,
}


@pytest.mark.parametrize('name', ['name', 'n' * 255, 'ü' * 127])
def test_a_write_leaves_the_file_and_nothing_else(tmp_path, name):
  path = tmp_path / 'a' / 'b' / name
  files.write(path, b'old')
  files.write(path, b'new')
  assert path.read_bytes() == b'new' and os.listdir(path.parent) == [name]


def test_an_unused_name_is_the_path_or_the_first_free_number_from_2_on(tmp_path):
  for wanted in ('a', 'a.2', 'a.3'):
    path = files.unused_name(tmp_path / 'a')
    assert path == tmp_path / wanted
    path.mkdir()


@pytest.mark.parametrize('fails', ['fsync', 'replace'])
def test_a_failed_write_leaves_the_file_unchanged_and_no_temporary_files(
  tmp_path, monkeypatch, fails
):
  path = tmp_path / 'name'
  files.write(path, b'old')

  def full(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(files.os, fails, full)
  with pytest.raises(
    UserError, match='name cannot be written: No space left on device; free disk'
  ):
    files.write(path, b'new')
  assert path.read_bytes() == b'old' and os.listdir(tmp_path) == ['name']


@pytest.fixture
def done(monkeypatch):
  """Returns what reaches the disk, in order: paths, and `renamed`."""
  done = []
  fsync, replace = os.fsync, os.replace

  def kept(descriptor):
    done.append(Path(os.readlink(f'/proc/self/fd/{descriptor}')))
    fsync(descriptor)

  def renamed(old, new):
    done.append('renamed')
    replace(old, new)

  monkeypatch.setattr(files.os, 'fsync', kept)
  monkeypatch.setattr(files.os, 'replace', renamed)
  return done


def test_a_file_and_then_its_name_reach_the_disk(tmp_path, done):
  files.write(tmp_path / 'name', b'new')
  assert [files.is_temporary(done[0]), *done[1:]] == [True, 'renamed', tmp_path]


def test_a_new_folder_gets_its_name_once_its_content_is_on_the_disk(tmp_path, done):
  path = tmp_path / 'a' / 'name'
  with files.new_folder(path) as folder:
    assert (
      files.is_temporary(folder) and not files.is_temporary(path) and not path.exists()
    )
    (folder / 'sub').mkdir()
    (folder / 'sub' / 'two').write_bytes(b'2')
  assert (
    os.listdir(path.parent) == ['name'] and (path / 'sub' / 'two').read_bytes() == b'2'
  )
  assert done[-2:] == ['renamed', path.parent]
  assert set(done[:-2]) == {folder, folder / 'sub', folder / 'sub' / 'two'}
  with pytest.raises(UserError, match='name cannot be written'), files.new_folder(path):
    pass
  assert os.listdir(path) == ['sub']


def test_a_folder_that_cannot_be_filled_leaves_nothing(tmp_path):
  for error, caught in (
    (ValueError('no'), ValueError),
    (OSError(28, 'full'), UserError),
  ):
    with pytest.raises(caught), files.new_folder(tmp_path / 'name') as folder:
      (folder / 'one').write_bytes(b'1')
      raise error
  assert os.listdir(tmp_path) == []


def test_a_sealed_file_holds_any_text_as_json_that_people_can_read(tmp_path):
  for value in (VALUE, {}):
    files.write_sealed(tmp_path / 'a', value)
    text = (tmp_path / 'a').read_text('utf-8')
    assert json.loads(text).items() > value.items() and text.endswith('"\n}\n')
    assert value == {} or ('\n  "seed": 7,\n' in text and 'größe' in text)
    assert files.read_sealed(tmp_path / 'a', 'this') == value


def test_every_changed_byte_of_a_sealed_file_is_noticed(tmp_path):
  path = tmp_path / 'a.json'
  files.write_sealed(path, {'seed': 7})
  whole = path.read_bytes()
  changes = [
    whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
    for place in range(len(whole))
  ]
  changes += [whole[:place] for place in range(len(whole))]
  changes += [whole[:place] + b' ' + whole[place:] for place in range(len(whole) + 1)]
  changes += [json.dumps(json.loads(whole)).encode(), whole + whole]
  for changed in changes:
    path.write_bytes(changed)
    with pytest.raises(
      UserError, match=r'a\.json should contain this.*restore it'
    ) as error:
      files.read_sealed(path, 'this')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'body', ['{"data": ' + '[' * 100_000, '{"seed": , ', '[', '{"\x00", ']
)
def test_a_file_that_cannot_be_read_is_rejected_by_name(tmp_path, body):
  for path, reason in ((tmp_path / 'a', 'No such file'), (tmp_path, 'Is a directory')):
    with pytest.raises(
      UserError, match=f'{path} should contain this, but cannot be read: {reason}'
    ):
      files.read_sealed(path, 'this')
  head = f'{body}"sha256": "'.encode()
  (tmp_path / 'a').write_bytes(
    head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'
  )
  with pytest.raises(
    UserError, match='a should contain this, but cannot be read: '
  ) as error:
    files.read_sealed(tmp_path / 'a', 'this')
  assert '\n' not in str(error.value)
