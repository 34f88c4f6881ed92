"""The mean of checkpoints is kept for the next start, and belongs to these checkpoints alone."""

import os
import shutil

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.runs.saved_checkpoints import LIKE, looked_at, state_of
from transformer.errors import UserError
from transformer.runs import averages
from transformer.runs.averages import keep_mean
from transformer.runs.checkpoints import AVERAGE, PARAMS, Checkpoints
from transformer.training.step import TrainState


@pytest.fixture(autouse=True)
def folder(tmp_path):
  before = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', str(tmp_path / 'cache'))
  (tmp_path / 'cache').mkdir()
  yield tmp_path / 'cache'
  jax.config.update('jax_compilation_cache_dir', before)


def mean_of(directory, steps, item=PARAMS):
  return looked_at(directory, lambda each: each.average_params(steps, LIKE.params, item))


@pytest.fixture
def reads(monkeypatch):
  """The steps that were read."""
  found, restore = [], Checkpoints.restore_params

  def counted(self, step, like, item=PARAMS):
    found.append(step)
    return restore(self, step, like, item)

  monkeypatch.setattr(Checkpoints, 'restore_params', counted)
  return found


def test_a_later_process_reads_no_checkpoint_and_gets_the_same_bits(directory, reads):
  first = mean_of(directory, [1, 2, 3])
  wanted = jax.tree.map(lambda *leaves: sum(leaves) / 3,
                        *(state_of(step).params for step in (1, 2, 3)))
  chex.assert_trees_all_close(first, wanted, rtol=1e-6)
  assert reads == [1, 2, 3]
  chex.assert_trees_all_equal(mean_of(directory, [1, 2, 3]), first)
  assert reads == [1, 2, 3]
  mean_of(directory, [2, 3])
  assert reads == [1, 2, 3, 2, 3]


def test_other_checkpoints_of_the_same_steps_have_their_own_mean(directory, tmp_path, reads):
  checkpoints = Checkpoints(tmp_path / 'other', keep=9)
  for step in (1, 2):
    params = jax.tree.map(jnp.negative, state_of(step).params)
    checkpoints.save(TrainState(jnp.int32(step), params, (), average=state_of(step).params),
                     {'evaluations': []})
  checkpoints.close()
  chex.assert_trees_all_equal(mean_of(tmp_path / 'other', [1, 2]),
                              jax.tree.map(jnp.negative, mean_of(directory, [1, 2])))
  chex.assert_trees_all_equal(mean_of(tmp_path / 'other', [1, 2], AVERAGE),
                              mean_of(directory, [1, 2]))
  assert reads == [1, 2, 1, 2, 1, 2]


def test_a_damaged_checkpoint_is_refused_although_the_mean_is_kept(directory):
  mean_of(directory, [1, 2])
  path = directory / '2' / 'params' / 'commit_success.txt'
  path.write_bytes(b'damaged')
  with pytest.raises(UserError, match='checkpoints/2 is damaged'):
    mean_of(directory, [1, 2])


def test_a_checkpoint_that_is_removed_while_means_are_taken_is_named(directory, monkeypatch):
  verify = Checkpoints._verify

  def verify_and_remove(self, step):
    verify(self, step)
    if step == 2:
      shutil.rmtree(directory / '2')

  monkeypatch.setattr(Checkpoints, '_verify', verify_and_remove)
  with pytest.raises(UserError, match='checkpoints/2 was there and has been removed'):
    mean_of(directory, [1, 2])


LEAF = jax.ShapeDtypeStruct((3,), jnp.float32)
MEAN = {'x': jnp.arange(3.0), 'y': {'z': jnp.arange(3.0) + 5.0}}
LIKE_MEAN = {'x': LEAF, 'y': {'z': LEAF}}


@pytest.mark.parametrize('change', ['shape', 'type', 'name', 'seals', 'backend', 'damage'])
def test_a_mean_is_computed_again_where_the_kept_one_does_not_fit(folder, monkeypatch, change):
  like, seals, calls = LIKE_MEAN, [b'a', b'b'], []

  def mean():
    calls.append(None)
    return MEAN

  keep_mean(mean, like, lambda: seals)
  if change == 'shape':
    like = {**like, 'x': jax.ShapeDtypeStruct((4,), jnp.float32)}
  elif change == 'type':
    like = {**like, 'x': jax.ShapeDtypeStruct((3,), jnp.int32)}
  elif change == 'name':
    like = {'x': LEAF, 'y': {'other': LEAF}}
  elif change == 'seals':
    seals = [b'b', b'a']
  elif change == 'backend':
    monkeypatch.setattr(jax, 'default_backend', lambda: 'tpu')
  else:
    path, = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
  for count in (2, 3) if change in ('shape', 'type', 'name') else (2, 2):
    chex.assert_trees_all_equal(keep_mean(mean, like, lambda: seals), MEAN)
    assert len(calls) == count


def test_a_mean_of_checkpoints_that_changed_meanwhile_is_not_kept(folder):
  def removed():
    raise UserError('checkpoint 2 was there and has been removed')

  for after in (lambda: [b'after'], removed):
    seals = iter([lambda: [b'before'], after])
    found = keep_mean(lambda: MEAN, LIKE_MEAN, lambda seals=seals: next(seals)())
    chex.assert_trees_all_equal(found, MEAN)
    assert not list(folder.iterdir())


@pytest.mark.parametrize('setting, value', [
    ('jax_compilation_cache_dir', None), ('jax_compilation_cache_dir', 'gs://bucket/cache'),
    ('jax_enable_compilation_cache', False)])
def test_nothing_is_kept_where_jax_keeps_nothing(tmp_path, monkeypatch, folder, setting, value):
  monkeypatch.chdir(tmp_path)
  before = jax.config.values[setting]
  jax.config.update(setting, value)
  try:
    assert keep_mean(lambda: 'the mean', LIKE_MEAN, list) == 'the mean'
  finally:
    jax.config.update(setting, before)
  assert not list(folder.iterdir()) and list(tmp_path.iterdir()) == [folder]


def test_the_means_that_were_not_used_for_longest_make_room(folder, monkeypatch):
  def use(number):
    keep_mean(lambda: MEAN, LIKE_MEAN, lambda: [b'%d' % number])
    for path in set(folder.iterdir()) - set(named.values()):
      named[number] = path
    os.utime(named[number], (1000 * number, 1000 * number))

  named = {}
  (folder / 'jit_program-cache').write_bytes(bytes(10_000))
  named['program'] = folder / 'jit_program-cache'
  for number in (1, 2, 3):
    use(number)
  os.utime(named[1], (9000, 1000))  # It was read again.
  size = named[1].stat().st_size
  monkeypatch.setattr(averages, '_LIMIT', 2 * size)
  use(4)
  assert set(folder.iterdir()) == {named['program'], named[1], named[4]}
  monkeypatch.setattr(averages, '_LIMIT', 1)
  use(5)
  assert set(folder.iterdir()) == {named['program'], named[5]}
