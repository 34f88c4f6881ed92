"""A checkpoint that differs in any byte from what was written is found, named and never used."""

import errno
import gc
import os
import pathlib
import pickle
import re
import shutil
import threading

import chex
import pytest

from tests.faults.damage import DAMAGES, damaged, files_of
from tests.runs.saved_checkpoints import (
    LIKE,
    history_of,
    looked_at,
    resumed,
    save,
    state_of,
)
from transformer.errors import UserError
from transformer.files import read_sealed, write_sealed
from transformer.runs import digests
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.digests import DIGESTS


@pytest.mark.parametrize('kind', DAMAGES)
def test_every_damage_to_every_file_is_found_before_anything_is_used(
    written, tmp_path, kind, monkeypatch):
  folder = tmp_path / '3'
  tried = 0
  for name in files_of(written / '3'):
    for _ in damaged(written / '3', folder, name, kind, positions=9):
      found = digests.find_damage(folder, 3)
      assert found, (name, kind)
      # The message may name a renamed file by either name.
      assert name in found, (name, kind, found)
      tried += 1
  assert tried >= len(files_of(written / '3'))


def test_every_change_of_the_digests_is_found(written, tmp_path):
  shutil.copytree(written / '3', tmp_path / '3')
  path = tmp_path / '3' / DIGESTS
  whole = path.read_bytes()
  for place in (*range(0, len(whole), 11), *range(len(whole) - 80, len(whole))):
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1:])
    assert DIGESTS in digests.find_damage(tmp_path / '3', 3), place
  path.write_bytes(whole)
  assert digests.find_damage(tmp_path / '3', 3) is None


def test_files_that_other_programs_add_are_ignored(directory, warnings):
  for name in files_of(directory / '3'):
    path = directory / '3' / name
    shutil.copy(path, path.with_name(f'{path.name} 2'))
    for added in ('.DS_Store', f'._{path.name}', 'Thumbs.db', '.nfs0000000000a80f2c00000001'):
      path.with_name(added).write_bytes(b'not of this checkpoint')
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(3))
  assert warnings == []


def test_a_checkpoint_under_another_step_is_found(directory):
  shutil.rmtree(directory / '3')
  (directory / '2').rename(directory / '3')
  assert 'it is the checkpoint of step 2' in digests.find_damage(directory / '3', 3)


def test_a_folder_or_a_link_in_place_of_a_file_is_found(directory):
  path = directory / '3' / 'params' / '_METADATA'
  shutil.move(path, directory / 'elsewhere')
  path.symlink_to(directory / 'elsewhere')
  assert digests.find_damage(directory / '3', 3) == 'params/_METADATA is not a file'
  path.unlink()
  path.mkdir()
  assert digests.find_damage(directory / '3', 3) == 'params/_METADATA is missing'


def test_a_checkpoint_without_digests_is_never_used(directory, warnings):
  (directory / '3' / DIGESTS).unlink()
  with pytest.raises(UserError, match=f'{directory}/3 is damaged: {DIGESTS} is missing'):
    looked_at(directory, lambda each: each.restore_params(3, LIKE.params))
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))


@pytest.mark.parametrize('name', [DIGESTS, 'params/_METADATA'])
@pytest.mark.parametrize(('number', 'is_damage'), [(errno.EACCES, False), (errno.EMFILE, False),
                                                   (errno.EIO, True)])
def test_a_file_without_permission_does_not_count_as_damaged(
    directory, warnings, monkeypatch, name, number, is_damage):
  path = directory / '3' / name
  whole = pathlib.Path.open

  def fails(self, *arguments, **options):
    if self == path:
      raise OSError(number, os.strerror(number), str(path))
    return whole(self, *arguments, **options)

  monkeypatch.setattr(pathlib.Path, 'open', fails)
  if is_damage:
    chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))
    assert name in warnings[0] and os.strerror(number) in warnings[0]
  else:
    with pytest.raises(OSError, match=os.strerror(number)):
      resumed(directory)
    assert looked_at(directory, Checkpoints.steps) == [1, 2, 3] and warnings == []


@pytest.mark.parametrize('use', [
    lambda each: each.resolve('best'), lambda each: each.restore(3, LIKE),
    lambda each: each.restore_params(each.resolve('latest'), LIKE.params),
    lambda each: each.average_params([2, 3], LIKE.params)])
def test_a_damaged_checkpoint_that_is_asked_for_is_not_replaced_by_another(directory, use):
  path = directory / '3' / 'params' / 'commit_success.txt'
  path.write_bytes(path.read_bytes()[:-1] + b'.')
  with pytest.raises(UserError, match=r'checkpoints/3 is damaged: params/commit_success\.txt') as e:
    looked_at(directory, use)
  assert '\n' not in str(e.value)
  # The other checkpoints can be read.
  chex.assert_trees_all_equal(
      looked_at(directory, lambda each: each.restore_params(each.resolve('2'), LIKE.params)),
      state_of(2).params)


def test_digests_are_pruned_with_their_checkpoint(tmp_path):
  save(tmp_path, range(1, 5), keep=1)
  assert [path.name for path in tmp_path.iterdir()] == ['4']
  assert read_sealed(tmp_path / '4' / DIGESTS, 'digests')['step'] == 4


def test_training_does_not_wait_for_the_digests(tmp_path, monkeypatch):
  seal, go_on = digests.seal, threading.Event()

  def slow(*arguments):
    assert go_on.wait(30)
    seal(*arguments)

  monkeypatch.setattr(digests, 'seal', slow)
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(state_of(1), history_of(()))
  assert looked_at(tmp_path, Checkpoints.steps) == []  # It is not sealed yet.
  go_on.set()
  checkpoints.close()
  assert looked_at(tmp_path, Checkpoints.steps) == [1]


@pytest.mark.parametrize('change', [
    {'files': 7}, {'files': {'x': 7}}, {'files': None}, {'step': 'three'}])
def test_malicious_digests_are_reported_as_damage(directory, change):
  path = directory / '3' / DIGESTS
  write_sealed(path, {**read_sealed(path, 'digests'), **change})
  with pytest.raises(UserError, match=r'checkpoints/3 is damaged: ') as error:
    looked_at(directory, lambda each: each.restore_params(3, LIKE.params))
  assert '\n' not in str(error.value)


class Mark:
  """An object whose unpickling creates a folder."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return os.mkdir, (str(self._path),)


# After a failed read, Orbax leaves objects that raise errors when they are collected.
@pytest.mark.long
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_a_pickle_in_a_checkpoint_is_not_loaded(written, tmp_path):
  mark = tmp_path / 'mark'
  planted = pickle.dumps(Mark(mark))
  pickle.loads(planted)
  mark.rmdir()  # The pickle works.
  for name in files_of(written / '3'):
    directory = tmp_path / 'checkpoints'
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(written, directory)
    (directory / '3' / name).write_bytes(planted)
    with pytest.raises(UserError, match=re.escape(name)):
      looked_at(directory, lambda each: each.restore(3, LIKE))
    # A stranger could also write the digests.
    if name != DIGESTS:
      (directory / '3' / DIGESTS).unlink()
      digests.seal(directory / '3', 3)
      try:
        state, _ = looked_at(directory, lambda each: each.restore(3, LIKE))
      except UserError as error:
        assert '\n' not in str(error)
      else:  # Nothing is read from this file.
        chex.assert_trees_all_equal(state, state_of(3))
    assert not mark.exists(), name
  gc.collect()
  gc.collect()
