"""A checkpoint that differs in any byte from what was written is found, named and never used."""

import contextlib
import errno
import gc
import os
import pathlib
import pickle
import shutil

import chex
import pytest

from tests.robustness.damage import DAMAGES, damaged, files_of
from tests.runs.saved_checkpoints import (
  LIKE,
  history_of,
  looked_at,
  resumed,
  save,
  state_of,
)
from transformer.errors import UserError
from transformer.runs import sealing
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints
from transformer.runs.sealing import DIGESTS


@pytest.mark.parametrize('kind', DAMAGES)
def test_every_damage_to_every_file_is_found(written, tmp_path, kind):
  folder = tmp_path / '3'
  for name in files_of(written / '3'):
    for _ in damaged(written / '3', folder, name, kind, positions=5):
      # The message may name a renamed file by either name.
      assert name in (sealing.find_damage(folder, 3) or ''), (name, kind)


def test_a_renamed_checkpoint_or_one_without_a_file_or_digests_is_damaged(directory):
  assert 'it is the checkpoint of step 3' in sealing.find_damage(directory / '3', 2)
  path = directory / '3' / 'params' / '_METADATA'
  path.unlink()
  assert sealing.find_damage(directory / '3', 3) == 'params/_METADATA is missing'
  (directory / '3' / DIGESTS).unlink()
  with pytest.raises(
    UserError, match=f'{directory}/3 is damaged: .*{DIGESTS} .*No such file'
  ):
    looked_at(directory, lambda opened: opened.resolve('3'))


def test_files_that_other_programs_add_are_ignored(directory, warnings):
  for name in files_of(directory / '3'):
    path = directory / '3' / name
    for added in (
      '.DS_Store',
      f'._{path.name}',
      'Thumbs.db',
      '.nfs0000000000a80f2c00000001',
    ):
      path.with_name(added).write_bytes(b'not of this checkpoint')
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(3))
  assert warnings == []


@pytest.mark.parametrize(
  ('name', 'number'),
  [
    (DIGESTS, errno.EACCES),
    ('params/_METADATA', errno.EACCES),
    ('params/_METADATA', errno.EIO),
  ],
)
def test_a_file_that_cannot_be_read_does_not_count_as_damaged(
  directory, warnings, monkeypatch, name, number
):
  path = directory / '3' / name
  whole = pathlib.Path.open

  def fails(self, *arguments, **options):
    if self == path:
      raise OSError(number, os.strerror(number), str(path))
    return whole(self, *arguments, **options)

  monkeypatch.setattr(pathlib.Path, 'open', fails)
  with pytest.raises((OSError, UserError), match=os.strerror(number)):
    resumed(directory)
  assert Checkpoints(directory).steps == [1, 2, 3] and warnings == []


@pytest.mark.parametrize(
  'use',
  [
    lambda opened: opened.resolve('best'),
    lambda opened: opened.history(3),
    lambda opened: opened.average_params([2, 3], LIKE.params),
  ],
)
def test_a_damaged_checkpoint_that_is_wanted_is_not_replaced_by_another(directory, use):
  path = directory / '3' / 'params' / 'commit_success.txt'
  path.write_bytes(path.read_bytes()[:-1] + b'.')
  with pytest.raises(
    UserError, match=r'checkpoints/3 is damaged: params/commit_success\.txt'
  ) as e:
    looked_at(directory, use)
  assert (
    '\n' not in str(e.value)
    and looked_at(directory, lambda opened: opened.resolve('2')) == 2
  )


def test_training_falls_back_and_moves_damaged_checkpoints_aside(directory, warnings):
  whole = files_of(directory / '3')
  os.truncate(directory / '3' / 'params' / '_METADATA', 7)
  state, history = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(2))
  assert history == history_of((4, 6))
  damage, moved = warnings
  assert f'{directory}/3 is damaged: params/_METADATA should have' in damage
  assert 'resumes from step 2' in moved and '3.damaged' in moved
  # The step can be saved again, and damaged again.
  save(directory, (3,), bleu=(4, 6, 5))
  (directory / '3' / 'rest' / 'manifest.ocdbt').unlink()
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))
  assert {path.name for path in directory.iterdir()} == {
    '1',
    '2',
    '3.damaged',
    '3.damaged.2',
  }
  assert files_of(directory / '3.damaged') == whole  # Nothing is lost.


def test_if_all_checkpoints_are_damaged_no_run_starts_and_nothing_moves(
  directory, warnings
):
  for step in (1, 2, 3):
    (directory / str(step) / 'params' / '_METADATA').unlink()
  before = sorted(directory.rglob('*'))
  with pytest.raises(
    UserError, match=r'all checkpoints in .* are damaged; restore one'
  ):
    resumed(directory)
  assert sorted(directory.rglob('*')) == before
  for step, warning in zip((3, 2, 1), warnings, strict=True):
    assert f'{directory}/{step} is damaged: params/_METADATA is missing' in warning


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
  mark, directory = tmp_path / 'mark', tmp_path / 'checkpoints'
  planted = pickle.dumps(Mark(mark))
  pickle.loads(planted)
  mark.rmdir()  # The pickle works.
  for name in files_of(written / '3'):
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(written, directory)
    (directory / '3' / name).write_bytes(planted)
    if name != DIGESTS:  # A stranger could also write the digests.
      (directory / '3' / DIGESTS).unlink()
      sealing.seal(directory / '3', 3)
    for use in (
      lambda opened: opened.average_params([3], LIKE.params),
      lambda opened: opened.restore(3, LIKE).params,
    ):
      try:
        with contextlib.closing(CheckpointWriter(directory, keep=9)) as checkpoints:
          params = use(checkpoints)
      except UserError as error:
        assert '\n' not in str(error)
      else:  # Nothing is read from this file.
        chex.assert_trees_all_equal(params, state_of(3).params)
      assert not mark.exists(), name
  gc.collect()
  gc.collect()
