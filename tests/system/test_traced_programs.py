"""Traced programs, and shapes of results, that are kept on disk."""

import chex
import jax
import jax.numpy as jnp
import pytest

from transformer.system import traced_programs

ROOMS = ('ops', 'model')
X = jnp.arange(6.0).reshape(2, 3)
WANTED = {'sum': jnp.sum(X), 'rows': (X * 2.0, X + 1.0)}


@pytest.fixture(autouse=True)
def folder(tmp_path):
  before = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', str(tmp_path))
  yield tmp_path
  jax.config.update('jax_compilation_cache_dir', before)


@pytest.fixture(name='traced')
def fixture_traced():
  """The arguments of each trace of `function`."""
  return []


@pytest.fixture(name='function')
def fixture_function(traced):
  def function(x, scale):
    traced.append(x)
    return {'sum': jnp.sum(x), 'rows': (x * scale['twice'], x + 1.0)}

  return function


def keep(function, about='a search', rooms=ROOMS, x=X):
  """Returns the results of a program that is new to this process."""
  arguments = x, {'twice': jnp.float32(2.0)}
  # Another function object, since JAX remembers what it has traced.
  return jax.jit(traced_programs.keep_traced(lambda *each: function(*each), about, rooms,
                                             arguments))(*arguments)


def kept(folder):
  return sorted(folder.glob('traced-*'))


def test_a_later_process_need_not_trace(function, traced, folder):
  for _ in range(3):
    chex.assert_trees_all_equal(keep(function), WANTED)
    assert len(traced) == 1
  assert len(kept(folder)) == 1


@pytest.mark.parametrize('given', [
    {'about': 'another search'}, {'x': X[:1]}, {'x': X.astype(jnp.int32)}, {'rooms': ('ops',)}],
    ids=str)
def test_a_program_is_traced_again_for_other_arguments(function, traced, given):
  keep(function)
  keep(function, **given)
  assert len(traced) == 2


def test_a_program_is_traced_again_once_code_or_settings_change(
    function, traced, monkeypatch, tmp_path):
  monkeypatch.setattr(traced_programs, '_CODE', tmp_path / 'rooms')
  for room in ROOMS:
    (tmp_path / 'rooms' / room).mkdir(parents=True)

  def traces():
    traced_programs._code_of.cache_clear()
    keep(function)
    return len(traced)

  assert [traces(), traces()] == [1, 1]
  (tmp_path / 'rooms/ops/one.py').write_text('a = 1')
  assert traces() == 2
  with jax.default_matmul_precision('float32'):
    assert traces() == 3
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_enable_fast_math=true')
  assert traces() == 4
  monkeypatch.setattr(traced_programs.metadata, 'version', lambda name: '0.99')
  assert traces() == 5
  traced_programs._code_of.cache_clear()


@pytest.mark.parametrize('damage', [lambda content: b'',
                                    lambda content: content[:40] + b'x' + content[41:]])
def test_a_damaged_file_is_named_and_its_program_is_traced_again(function, traced, folder,
                                                                 monkeypatch, damage):
  keep(function)
  path, = kept(folder)
  whole = path.read_bytes()
  path.write_bytes(damage(whole))
  warnings = []
  monkeypatch.setattr(traced_programs.logging, 'warning',
                      lambda text, *each: warnings.append(text % each))
  chex.assert_trees_all_equal(keep(function), WANTED)
  assert len(traced) == 2
  warning, = warnings
  assert str(path) in warning and 'made again' in warning
  chex.assert_trees_all_equal(keep(function), WANTED)
  assert len(traced) == 2


def shapes(traced, about='a model', rooms=ROOMS):
  def params():
    traced.append(None)
    return {'layer': {'kernel': jnp.zeros((2, 3)), 'step': jnp.int32(0)},
            'table': jnp.zeros((5,), jnp.bfloat16)}

  return traced_programs.keep_shapes(params, about, rooms)


def test_shapes_are_kept_until_anything_changes(traced, folder):
  wanted = {'layer': {'kernel': jax.ShapeDtypeStruct((2, 3), jnp.float32),
                      'step': jax.ShapeDtypeStruct((), jnp.int32)},
            'table': jax.ShapeDtypeStruct((5,), jnp.bfloat16)}
  for _ in range(3):
    assert shapes(traced) == wanted
    assert len(traced) == 1
  assert shapes(traced, about='another model') == wanted
  assert shapes(traced, rooms=('ops',)) == wanted
  assert len(traced) == 3
  for path in folder.glob('shapes-*'):
    path.write_bytes(path.read_bytes()[:-1])
  assert shapes(traced) == wanted
  assert len(traced) == 4
  jax.config.update('jax_compilation_cache_dir', None)
  assert shapes(traced) == wanted
  assert len(traced) == 5


def test_without_a_folder_nothing_is_kept(function, traced, folder):
  jax.config.update('jax_compilation_cache_dir', None)
  for count in (1, 2):
    chex.assert_trees_all_equal(keep(function), WANTED)
    assert len(traced) == count
  assert not kept(folder)


def test_a_program_that_cannot_be_kept_is_used_all_the_same(function, folder, monkeypatch):
  (folder / 'file').write_text('mine')
  jax.config.update('jax_compilation_cache_dir', str(folder / 'file/under'))
  warnings = []
  monkeypatch.setattr(traced_programs.logging, 'warning',
                      lambda text, *each: warnings.append(text % each))
  chex.assert_trees_all_equal(keep(function), WANTED)
  assert 'not kept' in warnings[-1]
