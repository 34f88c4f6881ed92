"""Checkpoints are saved, restored and kept, and training falls back to an earlier one."""

import errno
import os
import shutil

import chex
import orbax.checkpoint as ocp
import pytest

from tests.faults.damage import files_of
from tests.runs.saved_checkpoints import (
    LIKE,
    history_of,
    looked_at,
    resumed,
    save,
    state_of,
)
from transformer.errors import UserError
from transformer.runs import digests
from transformer.runs.checkpoints import PARAMS, Checkpoints
from transformer.runs.digests import DIGESTS
from transformer.runs.orbax_store import LiteralPath, OrbaxStore


@pytest.mark.parametrize(('name', 'reason'), [
    ('\udcff', r'path that is utf-8 text here; .*set PYTHONUTF8=1'), ('b\\1', r'without \\,'),
    ('b\\', r'without \\,'), ('logs:', 'without gs:/,')])
def test_a_path_that_tensorstore_cannot_open_is_not_reported_as_damage(tmp_path, name, reason):
  """Such as a path that is not ASCII if Python takes the file system's encoding for ASCII."""
  save(tmp_path / 'ü', [3])
  (tmp_path / 'ü').rename(tmp_path / name)
  for read_only in (True, False):
    with pytest.raises(UserError, match=reason):
      Checkpoints(tmp_path / name, read_only=read_only)
  (tmp_path / name).rename(tmp_path / 'ü')
  assert looked_at(tmp_path / 'ü', Checkpoints.steps) == [3]


@pytest.mark.parametrize('name', ['b[1]', 'b*', 'b?', 'b**'])
def test_no_character_of_a_path_stands_for_others(tmp_path, monkeypatch, name):
  """A folder that the name would match, as a pattern, holds another run that is being written."""
  monkeypatch.chdir(tmp_path)
  other = tmp_path / 'b1' / 'checkpoints'
  save(other, [3])
  written = (other / '3').rename(other / '4.unsealed.orbax-checkpoint-tmp')
  for part in ('params', 'rest'):
    (written / part).rename(written / f'{part}.orbax-checkpoint-tmp')
  os.mkdir(name)
  monkeypatch.chdir(name)
  save('checkpoints', [4])
  chex.assert_trees_all_equal(resumed('checkpoints')[0], state_of(4))


def test_a_checkpoint_that_cannot_be_read_back_replaces_no_other(tmp_path, monkeypatch):
  save(tmp_path, (1,), keep=1)
  with monkeypatch.context() as patch:  # Orbax's merge then finds nothing to merge.
    patch.setattr(LiteralPath, 'glob', lambda self, pattern: iter(()))
    with pytest.raises(UserError, match=r'2\.unsealed cannot be read back .*goes on from') as error:
      save(tmp_path, (2,), keep=1)
  assert '\n' not in str(error.value)
  assert looked_at(tmp_path, Checkpoints.steps) == [1]
  chex.assert_trees_all_equal(resumed(tmp_path)[0], state_of(1))
  assert [path.name for path in tmp_path.iterdir()] == ['1']


def test_a_mount_point_called_gs_is_no_bucket():
  assert str(LiteralPath('/gs/disk') / 'run') == '/gs/disk/run'


def test_a_reader_deletes_nothing(directory):
  removed = directory / 'removed' / '7'
  removed.mkdir(parents=True)
  assert looked_at(directory, lambda each: each.steps()) == [1, 2, 3]
  assert removed.is_dir()


def test_a_device_without_room_is_no_fault_of_the_checkpoint(directory, monkeypatch):
  def fail(*_):
    raise RuntimeError('RESOURCE_EXHAUSTED: out of memory')

  monkeypatch.setattr(OrbaxStore, 'read', fail)
  with pytest.raises(RuntimeError, match=r'^RESOURCE_EXHAUSTED'):
    looked_at(directory, lambda each: each.restore_params(2, LIKE.params))


def test_a_saved_checkpoint_is_whole_and_is_restored(directory, warnings):
  assert looked_at(directory, Checkpoints.steps) == [1, 2, 3]
  for step in (1, 2, 3):
    assert digests.find_damage(directory / str(step), step) is None
    assert len(files_of(directory / str(step))) > 9
  state, history = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(3))
  assert history == history_of((4, 6, 5)) and warnings == []


def test_training_falls_back_and_moves_damaged_checkpoints_aside(directory, warnings):
  whole = {name: (directory / '3' / name).read_bytes() for name in files_of(directory / '3')}
  os.truncate(directory / '3' / 'params' / '_METADATA', 7)
  state, history = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(2))
  assert history == history_of((4, 6))
  assert len(warnings) == 1 and '\n' not in warnings[0]
  assert f'{directory}/3 is damaged: params/_METADATA should have' in warnings[0]
  assert 'goes on from step 2' in warnings[0] and '3.damaged' in warnings[0]
  assert looked_at(directory, Checkpoints.steps) == [1, 2]
  assert looked_at(directory, Checkpoints.best_step) == 2
  # The step can be saved again, and damaged again.
  save(directory, (3,), bleu=(4, 6, 5))
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(3))
  (directory / '3' / DIGESTS).unlink()
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))
  assert looked_at(directory, Checkpoints.steps) == [1, 2]
  names = {path.name for path in directory.iterdir()}
  assert {'3.damaged', '3.damaged.2'} <= names
  assert len(whole) == len(files_of(directory / '3.damaged'))  # Nothing is lost.


def test_training_falls_back_past_several_damaged_checkpoints(directory, warnings):
  for step in (2, 3):
    (directory / str(step) / 'rest' / 'manifest.ocdbt').unlink()
  state, _ = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(1))
  assert len(warnings) == 2 and looked_at(directory, Checkpoints.steps) == [1]


def test_if_all_checkpoints_are_damaged_no_run_starts_and_nothing_moves(directory, warnings):
  for step in (1, 2, 3):
    (directory / str(step) / 'params' / '_METADATA').unlink()
  before = sorted(directory.rglob('*'))
  with pytest.raises(UserError, match=r'no checkpoint in .* is whole: 3: params/_METADATA .*; 2: '
                                      r'params/_METADATA .*; 1: params/.*; restore one') as error:
    resumed(directory)
  assert '\n' not in str(error.value)
  assert sorted(directory.rglob('*')) == before and warnings == []
  shutil.rmtree(directory)
  checkpoints = Checkpoints(directory)
  assert checkpoints.fall_back() is None
  checkpoints.close()


def test_the_best_of_the_oldest_kept_checkpoint_is_kept_for_a_fall_back(tmp_path):
  save(tmp_path, range(1, 8), bleu=(1, 2, 9, 3, 4, 5, 10), keep=2)
  # 6 and 7 are the latest, 7 is the best, and 3 was the best when 6 was the latest.
  assert looked_at(tmp_path, Checkpoints.steps) == [3, 6, 7]
  assert looked_at(tmp_path, Checkpoints.best_step) == 7
  (tmp_path / '7' / 'history' / 'metadata').unlink()
  _, history = resumed(tmp_path)
  assert history == history_of((1, 2, 9, 3, 4, 5))
  assert looked_at(tmp_path, lambda each: each.resolve('best')) == 3
  save(tmp_path, (7, 8), bleu=(1, 2, 9, 3, 4, 5, 10, 7), keep=2)
  assert looked_at(tmp_path, Checkpoints.steps) == [7, 8]


def test_checkpoints_that_a_killed_process_did_not_delete_are_pruned(tmp_path):
  bleu = (1, 2, 9, 3, 4, 5, 10)
  save(tmp_path, range(1, 8), bleu)
  assert looked_at(tmp_path, Checkpoints.steps) == [1, 2, 3, 4, 5, 6, 7]
  checkpoints = Checkpoints(tmp_path, keep=2)
  checkpoints.prune(history_of(bleu))
  checkpoints.close()
  assert sorted(path.name for path in tmp_path.iterdir()) == ['3', '6', '7']


def test_a_missing_best_checkpoint_is_not_replaced_by_the_second_best(directory):
  shutil.rmtree(directory / '2')
  with pytest.raises(UserError, match=r'best checkpoint of .*, of step 2, is not there; choose '
                                      r'another: latest, or one of the steps 1, 3'):
    looked_at(directory, lambda each: each.resolve('best'))
  assert looked_at(directory, lambda each: each.resolve('latest')) == 3


@pytest.mark.parametrize('when', ['before', 'after'])
def test_a_kill_before_or_after_sealing_loses_only_that_checkpoint(
    tmp_path, monkeypatch, when, warnings):
  """`keep` is 1, so that the checkpoint before would be lost if it were deleted too early."""
  directory = tmp_path / 'checkpoints'
  save(directory, (1,), keep=1)
  seal = digests.seal

  def killed(*arguments):
    if when == 'after':
      seal(*arguments)
    raise OSError(errno.EIO, 'killed')

  with monkeypatch.context() as patch:
    patch.setattr(digests, 'seal', killed)
    with pytest.raises(Exception, match='killed'):
      save(directory, (2,), keep=1)
  assert '2.unsealed' in {path.name for path in directory.iterdir()}
  assert looked_at(directory, Checkpoints.steps) == [1]
  assert '2.unsealed' in {path.name for path in directory.iterdir()}  # Reading deletes nothing.
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(1))
  assert {path.name for path in directory.iterdir()} == {'1'} and warnings == []
  save(directory, (2,), keep=1)
  assert {path.name for path in directory.iterdir()} == {'2'}
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))


def test_a_checkpoint_that_is_removed_while_it_is_compared_is_not_called_damaged(directory,
                                                                                 monkeypatch):
  def find_damage(folder, step):
    shutil.rmtree(folder)
    return 'a file cannot be read'

  monkeypatch.setattr(digests, 'find_damage', find_damage)
  with pytest.raises(UserError, match='1 was there and has been removed, as a run in training'):
    looked_at(directory, lambda each: each.restore_params(1, LIKE.params))


def test_a_checkpoint_that_training_removes_during_reading_is_reported(directory, monkeypatch):
  for when in ('before it is looked at', 'before it is read'):
    copy = directory.with_name(when)
    shutil.copytree(directory, copy)
    checkpoints = Checkpoints(copy, read_only=True)
    if when == 'before it is looked at':
      shutil.rmtree(copy / '1')
    else:
      restore = checkpoints._store._manager.restore

      def late(*arguments, copy=copy, restore=restore, **options):
        shutil.rmtree(copy / '1')
        return restore(*arguments, **options)

      monkeypatch.setattr(checkpoints._store._manager, 'restore', late)
    with pytest.raises(UserError, match='was there and has been removed, as a run in training'):
      checkpoints.restore_params(1, LIKE.params)
    checkpoints.close()


@pytest.mark.parametrize('history', [
    {}, {'evaluations': 7}, {'evaluations': [7]}, {'evaluations': [{'step': 1}]},
    {'evaluations': [{'step': 1, 'valid/bleu': 1}]},
    {'evaluations': [{'step': 1, 'valid/bleu': 'high', 'valid/loss': 2}]},
    {'evaluations': [{'step': 1, 'valid/bleu': 1, 'valid/loss': 'low'}]},
    {'evaluations': [{'step': [], 'valid/bleu': 1, 'valid/loss': 2}]}])
def test_a_malformed_history_is_refused(tmp_path, history):
  checkpoints = Checkpoints(tmp_path)
  checkpoints._store._manager.save(1, args=ocp.args.Composite(
      history=ocp.args.JsonSave(history)))
  checkpoints.close()
  with pytest.raises(UserError, match=f'{tmp_path}/1 should hold a history'):
    looked_at(tmp_path, Checkpoints.best_step)


def test_parameters_are_read_without_the_rest_of_a_checkpoint(directory):
  found = looked_at(directory, lambda each: each.restore_params(2, LIKE.params, PARAMS))
  chex.assert_trees_all_equal(found, state_of(2).params)
