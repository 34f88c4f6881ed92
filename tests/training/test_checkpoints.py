"""A checkpoint that is not, byte for byte, as it was written is found, named and never used."""

import errno
import gc
import os
import pathlib
import pickle
import re
import shutil
import threading

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.faults.damage import DAMAGES, damaged, files_of
from transformer.errors import UserError
from transformer.files import read_sealed, write_sealed
from transformer.training import checkpoints as module
from transformer.training import digests
from transformer.training.checkpoints import PARAMS, Checkpoints
from transformer.training.digests import DIGESTS
from transformer.training.step import TrainState


def state_of(step: int) -> TrainState:
  """A state that no other step has, of incompressible numbers."""
  rng = np.random.default_rng(step)
  params = {'a': jnp.asarray(rng.normal(size=(7, 5)), jnp.float32),
            'b': {'c': jnp.asarray(rng.normal(size=11), jnp.float32)}}
  optimizer = (jax.tree.map(jnp.square, params), jnp.int32(step))
  return TrainState(jnp.int32(step), params, optimizer)


LIKE = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state_of(0))


def history_of(bleu) -> dict:
  return {'evaluations': [{'step': step, 'valid/bleu': float(each), 'valid/loss': 3.0}
                          for step, each in enumerate(bleu, 1)], 'meter': {}}


def save(directory, steps, bleu=(), keep=9):
  checkpoints = Checkpoints(directory, keep=keep)
  for step in steps:
    checkpoints.save(state_of(step), history_of(bleu[:step]))
  checkpoints.close()


def looked_at(directory, action):
  """What `action` gives of the checkpoints in a directory, opened only to look."""
  checkpoints = Checkpoints(directory, read_only=True)
  try:
    return action(checkpoints)
  finally:
    checkpoints.close()


def test_a_path_that_tensorstore_cannot_take_is_named_and_nothing_is_said_of_damage(tmp_path):
  """As one that is not ASCII is where Python takes the system for ASCII's."""
  save(tmp_path / 'ü', [3])
  (tmp_path / 'ü').rename(tmp_path / '\udcff')
  for read_only in (True, False):
    with pytest.raises(UserError, match=r'path that is utf-8 text here; .*set PYTHONUTF8=1'):
      Checkpoints(tmp_path / '\udcff', read_only=read_only)
  (tmp_path / '\udcff').rename(tmp_path / 'ü')
  assert looked_at(tmp_path / 'ü', Checkpoints.steps) == [3]


def resumed(directory):
  """The state that training would go on from, and its history."""
  checkpoints = Checkpoints(directory)
  try:
    return checkpoints.restore(checkpoints.fall_back(), LIKE)
  finally:
    checkpoints.close()


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """Checkpoints 1 to 3, of which 2 is the best; no test may change them."""
  directory = tmp_path_factory.mktemp('written') / 'checkpoints'
  save(directory, (1, 2, 3), bleu=(4, 6, 5))
  return directory


@pytest.fixture
def directory(written, tmp_path):
  shutil.copytree(written, tmp_path / 'checkpoints')
  return tmp_path / 'checkpoints'


@pytest.fixture
def warnings(monkeypatch):
  said = []
  monkeypatch.setattr(module.logging, 'warning', lambda text, *values: said.append(text % values))
  return said


def test_what_was_saved_is_whole_and_is_restored(directory, warnings):
  assert looked_at(directory, Checkpoints.steps) == [1, 2, 3]
  for step in (1, 2, 3):
    assert digests.damage(directory / str(step), step) is None
    assert len(files_of(directory / str(step))) > 9
  state, history = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(3))
  assert history == history_of((4, 6, 5)) and warnings == []


@pytest.mark.parametrize('kind', DAMAGES)
def test_every_damage_to_every_file_is_found_before_anything_is_used(
    written, tmp_path, kind, monkeypatch):
  folder = tmp_path / '3'
  tried = 0
  for name in files_of(written / '3'):
    for _ in damaged(written / '3', folder, name, kind, positions=9):
      found = digests.damage(folder, 3)
      assert found, (name, kind)
      # A file that was renamed or added may be named by either of its names.
      assert name in found, (name, kind, found)
      assert (kind == 'add') == ('does not belong to it' in found) or kind == 'rename'
      tried += 1
  assert tried >= len(files_of(written / '3'))


def test_the_digests_themselves_are_not_to_be_changed(written, tmp_path):
  shutil.copytree(written / '3', tmp_path / '3')
  path = tmp_path / '3' / DIGESTS
  whole = path.read_bytes()
  for place in (*range(0, len(whole), 11), *range(len(whole) - 80, len(whole))):
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1:])
    assert DIGESTS in digests.damage(tmp_path / '3', 3), place
  path.write_bytes(whole)
  assert digests.damage(tmp_path / '3', 3) is None


def test_a_checkpoint_is_not_taken_for_another(directory):
  shutil.rmtree(directory / '3')
  (directory / '2').rename(directory / '3')
  assert 'it is the checkpoint of step 2' in digests.damage(directory / '3', 3)


def test_a_folder_where_a_file_was_and_a_link_are_found(directory):
  path = directory / '3' / 'params' / '_METADATA'
  shutil.move(path, directory / 'elsewhere')
  path.symlink_to(directory / 'elsewhere')
  assert digests.damage(directory / '3', 3) == 'params/_METADATA is not a file'
  path.unlink()
  path.mkdir()
  assert digests.damage(directory / '3', 3) == 'params/_METADATA is missing'


def test_training_falls_back_and_what_is_damaged_is_moved_aside(directory, warnings):
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
  # The step can be saved again, is then whole, and may be damaged again.
  save(directory, (3,), bleu=(4, 6, 5))
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(3))
  (directory / '3' / DIGESTS).unlink()
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))
  assert looked_at(directory, Checkpoints.steps) == [1, 2]
  names = {path.name for path in directory.iterdir()}
  assert {'3.damaged', '3.damaged.2'} <= names
  assert len(whole) == len(files_of(directory / '3.damaged'))  # Moved, with nothing taken out.


def test_training_falls_back_as_far_as_it_must(directory, warnings):
  for step in (2, 3):
    (directory / str(step) / 'rest' / 'manifest.ocdbt').unlink()
  state, _ = resumed(directory)
  chex.assert_trees_all_equal(state, state_of(1))
  assert len(warnings) == 2 and looked_at(directory, Checkpoints.steps) == [1]


def test_where_none_is_whole_nothing_is_begun_anew_and_nothing_moved(directory, warnings):
  for step in (1, 2, 3):
    (directory / str(step) / 'params' / 'added').touch()
  before = sorted(directory.rglob('*'))
  with pytest.raises(UserError, match=r'no checkpoint in .* is whole: 3: params/added .*; 2: params'
                                      r'/added .*; 1: params/added .*; restore one') as error:
    resumed(directory)
  assert '\n' not in str(error.value)
  assert sorted(directory.rglob('*')) == before and warnings == []
  shutil.rmtree(directory)
  checkpoints = Checkpoints(directory)
  assert checkpoints.fall_back() is None
  checkpoints.close()


def test_a_checkpoint_without_digests_is_never_used(directory, warnings):
  (directory / '3' / DIGESTS).unlink()
  with pytest.raises(UserError, match=f'{directory}/3 is damaged: {DIGESTS} is missing'):
    looked_at(directory, lambda each: each.restore_params(3, LIKE.params))
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))


@pytest.mark.parametrize('name', [DIGESTS, 'params/_METADATA'])
@pytest.mark.parametrize(('number', 'is_damage'), [(errno.EACCES, False), (errno.EMFILE, False),
                                                   (errno.EIO, True)])
def test_what_may_not_be_read_is_not_taken_for_damaged(
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
def test_whoever_names_a_damaged_checkpoint_gets_no_other(directory, use):
  path = directory / '3' / 'params' / 'commit_success.txt'
  path.write_bytes(path.read_bytes()[:-1] + b'.')
  with pytest.raises(UserError, match=r'checkpoints/3 is damaged: params/commit_success\.txt') as e:
    looked_at(directory, use)
  assert '\n' not in str(e.value)
  # What does not need it can be had.
  chex.assert_trees_all_equal(
      looked_at(directory, lambda each: each.restore_params(each.resolve('2'), LIKE.params)),
      state_of(2).params)


def test_the_best_that_a_fall_back_knows_is_kept(tmp_path):
  save(tmp_path, range(1, 8), bleu=(1, 2, 9, 3, 4, 5, 10), keep=2)
  # 6 and 7 are the latest, 7 is the best, and 3 was when 6 was the latest.
  assert looked_at(tmp_path, Checkpoints.steps) == [3, 6, 7]
  assert looked_at(tmp_path, Checkpoints.best_step) == 7
  (tmp_path / '7' / 'history' / 'metadata').unlink()
  _, history = resumed(tmp_path)
  assert history == history_of((1, 2, 9, 3, 4, 5))
  assert looked_at(tmp_path, lambda each: each.resolve('best')) == 3
  save(tmp_path, (7, 8), bleu=(1, 2, 9, 3, 4, 5, 10, 7), keep=2)
  assert looked_at(tmp_path, Checkpoints.steps) == [7, 8]


def test_what_a_killed_process_did_not_remove_is_pruned_as_it_would_have_been(tmp_path):
  bleu = (1, 2, 9, 3, 4, 5, 10)
  save(tmp_path, range(1, 8), bleu)
  assert looked_at(tmp_path, Checkpoints.steps) == [1, 2, 3, 4, 5, 6, 7]
  checkpoints = Checkpoints(tmp_path, keep=2)
  checkpoints.prune(history_of(bleu))
  checkpoints.close()
  assert sorted(path.name for path in tmp_path.iterdir()) == ['3', '6', '7']


def test_a_best_that_is_gone_is_not_replaced_by_the_second_best(directory):
  shutil.rmtree(directory / '2')
  with pytest.raises(UserError, match=r'best checkpoint of .*, of step 2, is not there; choose '
                                      r'another: latest, or one of the steps 1, 3'):
    looked_at(directory, lambda each: each.resolve('best'))
  assert looked_at(directory, lambda each: each.resolve('latest')) == 3


def test_digests_are_pruned_with_their_checkpoint(tmp_path):
  save(tmp_path, range(1, 5), keep=1)
  assert [path.name for path in tmp_path.iterdir()] == ['4']
  assert read_sealed(tmp_path / '4' / DIGESTS, 'digests')['step'] == 4


@pytest.mark.parametrize('when', ['before', 'after'])
def test_a_kill_around_the_sealing_costs_that_checkpoint_and_no_other(
    tmp_path, monkeypatch, when, warnings):
  """`keep` is 1, so that the one before would go if it went too early."""
  directory = tmp_path / 'checkpoints'
  save(directory, (1,), keep=1)
  seal = digests.seal

  def killed(*arguments):
    if when == 'after':
      seal(*arguments)
    raise OSError(errno.EIO, 'killed')

  with monkeypatch.context() as patch:
    patch.setattr(module.digests, 'seal', killed)
    with pytest.raises(Exception, match='killed'):
      save(directory, (2,), keep=1)
  assert '2.unsealed' in {path.name for path in directory.iterdir()}
  assert looked_at(directory, Checkpoints.steps) == [1]
  assert '2.unsealed' in {path.name for path in directory.iterdir()}  # Who looks leaves it alone.
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(1))
  assert {path.name for path in directory.iterdir()} == {'1'} and warnings == []
  save(directory, (2,), keep=1)
  assert {path.name for path in directory.iterdir()} == {'2'}
  chex.assert_trees_all_equal(resumed(directory)[0], state_of(2))


def test_what_training_removes_while_it_is_read_is_said(directory, monkeypatch):
  for when in ('before it is looked at', 'before it is read'):
    copy = directory.with_name(when)
    shutil.copytree(directory, copy)
    checkpoints = Checkpoints(copy, read_only=True)
    if when == 'before it is looked at':
      shutil.rmtree(copy / '1')
    else:
      restore = checkpoints._manager.restore

      def late(*arguments, copy=copy, restore=restore, **options):
        shutil.rmtree(copy / '1')
        return restore(*arguments, **options)

      monkeypatch.setattr(checkpoints._manager, 'restore', late)
    with pytest.raises(UserError, match='was there and has been removed, as a run in training'):
      checkpoints.restore_params(1, LIKE.params)
    checkpoints.close()


def test_training_does_not_wait_for_the_digests(tmp_path, monkeypatch):
  seal, go_on = digests.seal, threading.Event()

  def slow(*arguments):
    assert go_on.wait(30)
    seal(*arguments)

  monkeypatch.setattr(module.digests, 'seal', slow)
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(state_of(1), history_of(()))
  assert looked_at(tmp_path, Checkpoints.steps) == []  # Not sealed, so not there.
  go_on.set()
  checkpoints.close()
  assert looked_at(tmp_path, Checkpoints.steps) == [1]


@pytest.mark.parametrize('history', [
    {}, {'evaluations': 7}, {'evaluations': [7]}, {'evaluations': [{'step': 1}]},
    {'evaluations': [{'step': 1, 'valid/bleu': 1}]},
    {'evaluations': [{'step': 1, 'valid/bleu': 'high', 'valid/loss': 2}]},
    {'evaluations': [{'step': 1, 'valid/bleu': 1, 'valid/loss': 'low'}]},
    {'evaluations': [{'step': [], 'valid/bleu': 1, 'valid/loss': 2}]}])
def test_a_history_that_is_none_is_refused(tmp_path, history):
  checkpoints = Checkpoints(tmp_path)
  checkpoints._manager.save(1, args=module.ocp.args.Composite(
      history=module.ocp.args.JsonSave(history)))
  checkpoints.close()
  with pytest.raises(UserError, match=f'{tmp_path}/1 should hold a history'):
    looked_at(tmp_path, Checkpoints.best_step)


@pytest.mark.parametrize('change', [
    {'files': 7}, {'files': {'x': 7}}, {'files': None}, {'step': 'three'}, {'files': {}}])
def test_digests_that_were_written_to_do_harm_only_fail(directory, change):
  path = directory / '3' / DIGESTS
  write_sealed(path, {**read_sealed(path, 'digests'), **change})
  with pytest.raises(UserError, match=r'checkpoints/3 is damaged: ') as error:
    looked_at(directory, lambda each: each.restore_params(3, LIKE.params))
  assert '\n' not in str(error.value)


class Mark:
  """An object whose unpickling makes a file."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return os.mkdir, (str(self._path),)


# What Orbax leaves behind when it cannot read, which shows when it is collected.
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_a_pickle_in_a_checkpoint_is_not_loaded(written, tmp_path):
  mark = tmp_path / 'mark'
  planted = pickle.dumps(Mark(mark))
  pickle.loads(planted)
  mark.rmdir()  # It would have left a mark.
  for name in files_of(written / '3'):
    directory = tmp_path / 'checkpoints'
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(written, directory)
    (directory / '3' / name).write_bytes(planted)
    with pytest.raises(UserError, match=re.escape(name)):
      looked_at(directory, lambda each: each.restore(3, LIKE))
    # And as a stranger would plant it, who can make digests too.
    if name != DIGESTS:
      (directory / '3' / DIGESTS).unlink()
      digests.seal(directory / '3', 3)
      try:
        state, _ = looked_at(directory, lambda each: each.restore(3, LIKE))
      except UserError as error:
        assert '\n' not in str(error)
      else:  # Of a file that nothing is read from.
        chex.assert_trees_all_equal(state, state_of(3))
    assert not mark.exists(), name
  gc.collect()
  gc.collect()


def test_parameters_alone_are_read_of_a_whole_checkpoint(directory):
  found = looked_at(directory, lambda each: each.restore_params(2, LIKE.params, PARAMS))
  chex.assert_trees_all_equal(found, state_of(2).params)
