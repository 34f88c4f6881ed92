"""The mean of checkpoints is kept for the next start, and belongs to these checkpoints alone."""

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.runs.saved_checkpoints import LIKE, looked_at, state_of
from transformer.errors import UserError
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


@pytest.mark.parametrize('change', ['shape', 'seals', 'damage', 'nothing is kept'])
def test_a_mean_is_computed_again_where_the_kept_one_does_not_fit(folder, change):
  like, seals, calls = {'x': jax.ShapeDtypeStruct((3,), jnp.float32)}, [b'a', b'b'], []

  def mean():
    calls.append(None)
    return {'x': jnp.arange(3.0)}

  keep_mean(mean, like, seals)
  if change == 'shape':
    like = {'x': jax.ShapeDtypeStruct((4,), jnp.float32)}
  elif change == 'seals':
    seals = [b'b', b'a']
  elif change == 'damage':
    path, = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
  else:
    jax.config.update('jax_compilation_cache_dir', None)
  for count in (2, 3) if change in ('shape', 'nothing is kept') else (2, 2):
    chex.assert_trees_all_equal(keep_mean(mean, like, seals), {'x': jnp.arange(3.0)})
    assert len(calls) == count
