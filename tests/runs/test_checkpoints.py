"""Checkpoints are saved, restored and kept, also where a process is killed."""

import contextlib
import errno
import os
import shutil

import chex
import jax
import pytest

from tests.runs.saved_checkpoints import (
  LIKE,
  history_of,
  looked_at,
  resumed,
  save,
  state_of,
)
from transformer.errors import UserError
from transformer.runs import checkpoint_writer, sealing
from transformer.runs.checkpoint_writer import CheckpointWriter
from transformer.runs.checkpoints import Checkpoints


def names_in(directory):
  return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize(
  ('name', 'reason'),
  [('b\\1', r'contain \\,'), ('logs:', 'contain gs:/,'), ('b[1]', r'contain \[,')],
)
def test_a_path_that_orbax_misreads_is_rejected(tmp_path, name, reason):
  for kind in (Checkpoints, CheckpointWriter):
    with pytest.raises(UserError, match=reason):
      kind(tmp_path / name)


def test_a_saved_checkpoint_is_whole_and_is_restored(directory, warnings):
  assert Checkpoints(directory).steps == [1, 2, 3]
  assert looked_at(
    directory,
    lambda opened: [opened.resolve(which) for which in ('best', 'latest', '1')],
  ) == [2, 3, 1]
  for step in (1, 2, 3):
    assert sealing.find_damage(directory / str(step), step) is None
  state, history = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(3))
  assert history == history_of((4, 6, 5)) and warnings == []


@pytest.mark.parametrize('steps', [[2], [1, 2, 3]])
def test_only_parameters_are_read_and_averaged(directory, steps):
  params = looked_at(
    directory, lambda opened: opened.average_params(steps, LIKE.params)
  )
  mean = jax.tree.map(
    lambda *leaves: sum(leaves) / len(steps), *(state_of(step).params for step in steps)
  )
  chex.assert_trees_all_close(params, mean, rtol=1e-6)


def test_a_reader_deletes_nothing(directory):
  for name in ('removed/7', '4.unsealed'):
    (directory / name).mkdir(parents=True)
  before = names_in(directory)
  assert Checkpoints(directory).steps == [1, 2, 3]
  looked_at(directory, lambda opened: opened.average_params([2, 3], LIKE.params))
  assert names_in(directory) == before


def test_the_latest_and_the_best_are_kept(tmp_path):
  save(tmp_path, range(1, 8), bleu=(1, 2, 9, 3, 4, 5, 8), keep=2)
  assert Checkpoints(tmp_path).steps == [3, 6, 7]
  assert looked_at(tmp_path, lambda opened: opened.resolve('best')) == 3


def test_checkpoints_that_a_killed_process_did_not_delete_are_deleted(directory):
  (directory / 'removed' / '0').mkdir(parents=True)
  with contextlib.closing(CheckpointWriter(directory, keep=1)) as checkpoints:
    checkpoints.restore(3, LIKE)
  assert names_in(directory) == {'2', '3'}


def test_an_interrupted_checkpoint_does_not_count_and_is_replaced(tmp_path):
  save(tmp_path, (1, 2, 3), keep=2)
  checkpoints = CheckpointWriter(tmp_path, keep=2)
  for step in (4, 5):
    checkpoints.save(state_of(step), history_of((1,)), eval_pending=True)
    checkpoints.wait()
    assert names_in(tmp_path) == {
      '2',
      '3',
      str(step),
    } and checkpoints.is_eval_pending(step)
  checkpoints.close()
  assert looked_at(
    tmp_path,
    lambda opened: opened.is_eval_pending(5) and not opened.is_eval_pending(3),
  )
  save(tmp_path, (5,), keep=2)
  assert names_in(tmp_path) == {'3', '5'}
  assert not looked_at(tmp_path, lambda opened: opened.is_eval_pending(5))


@pytest.mark.parametrize('when', ['starting', 'writing'])
def test_an_interrupted_checkpoint_stays_until_the_finished_one_is_written(
  tmp_path, monkeypatch, when
):
  directory = tmp_path / 'checkpoints'
  with contextlib.closing(CheckpointWriter(directory, keep=1)) as checkpoints:
    checkpoints.save(state_of(4), history_of(()), eval_pending=True)

  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with monkeypatch.context() as patch, pytest.raises(UserError, match='No space left'):
    patch.setattr(
      *(checkpoint_writer.ocp.AsyncCheckpointer, 'save')
      if when == 'starting'
      else (sealing, 'seal'),
      full,
    )
    save(directory, (4,), keep=1)
  with contextlib.closing(CheckpointWriter(directory, keep=1)) as checkpoints:
    assert checkpoints.latest_intact() == 4 and checkpoints.is_eval_pending(4)
    chex.assert_trees_all_equal(checkpoints.restore(4, LIKE), state_of(4))
  save(directory, (4,), keep=1)
  assert names_in(directory) == {'4'}
  assert not looked_at(directory, lambda opened: opened.is_eval_pending(4))


def test_a_missing_best_checkpoint_is_not_replaced_by_the_second_best(directory):
  shutil.rmtree(directory / '2')
  with pytest.raises(
    UserError, match=r'one of the steps 1, 3; got .*step 2 is missing'
  ):
    looked_at(directory, lambda opened: opened.resolve('best'))
  assert looked_at(directory, lambda opened: opened.resolve('latest')) == 3


@pytest.mark.parametrize('when', ['before', 'after'])
def test_a_failure_around_sealing_is_a_one_line_error_and_loses_only_that_checkpoint(
  tmp_path, monkeypatch, when, warnings
):
  """`keep` is 1, so that the checkpoint before would be lost if it were deleted too early."""
  directory = tmp_path / 'checkpoints'
  save(directory, (1,), keep=1)
  seal = sealing.seal

  def killed(*arguments):
    if when == 'after':
      seal(*arguments)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with monkeypatch.context() as patch:
    patch.setattr(sealing, 'seal', killed)
    with pytest.raises(
      UserError, match=r'cannot write a checkpoint to .*No space left .* resume'
    ) as e:
      save(directory, (2,), keep=1)
  assert '\n' not in str(e.value)
  assert '2.unsealed' in names_in(directory)
  assert Checkpoints(directory).steps == [1]
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(1))
  assert names_in(directory) == {'1'} and warnings == []
  save(directory, (2,), keep=1)
  assert names_in(directory) == {'2'}


def test_a_checkpoint_that_training_removes_is_not_called_damaged(directory):
  def use(checkpoints):
    checkpoints.resolve('1')
    shutil.rmtree(directory / '1')
    checkpoints.average_params([1], LIKE.params)

  with pytest.raises(
    UserError, match='1 was deleted in the meantime: a run deletes old'
  ):
    looked_at(directory, use)
