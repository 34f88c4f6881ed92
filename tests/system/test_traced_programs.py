"""Traced programs that are kept on disk."""

import chex
import jax
import jax.numpy as jnp
import pytest

from transformer.system import traced_programs

MODULES = ('transformer.ops.search', 'transformer.model.layers')
X = jnp.arange(6.0).reshape(2, 3)
WANTED = {'sum': jnp.sum(X), 'rows': (X * 2.0, X + 1.0)}


@pytest.fixture
def folder(tmp_path):
  before = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', str(tmp_path))
  yield tmp_path
  jax.config.update('jax_compilation_cache_dir', before)


@pytest.fixture
def traces(folder):
  """Returns a function that runs a program, new to this process, and counts all its traces."""
  traced = []

  def run(about='a search', modules=MODULES, x=X):
    def function(x, scale):
      traced.append(x)
      return {'sum': jnp.sum(x), 'rows': (x * scale['twice'], x + 1.0)}

    arguments = x, {'twice': jnp.float32(2.0)}
    kept = traced_programs.cache_traced(function, about, modules, arguments)
    results = jax.jit(kept)(*arguments)
    if x is X:
      chex.assert_trees_all_equal(results, WANTED)
    return len(traced)

  return run


def test_a_later_process_traces_only_for_other_arguments(traces, folder):
  assert [traces(), traces(), traces()] == [1, 1, 1]
  assert len([*folder.glob('traced-*')]) == 1
  assert [
    traces('another search'),
    traces(x=X[:1]),
    traces(x=X.astype(jnp.int32)),
    traces(),
  ] == [2, 3, 4, 4]


def test_a_damaged_program_is_traced_again(traces, folder):
  assert traces() == 1
  (path,) = folder.glob('traced-*')
  whole = path.read_bytes()
  flipped = bytearray(whole)
  flipped[len(whole) // 2] ^= 1
  for traced, content in enumerate((b'', whole[:-9], bytes(flipped)), 2):
    path.write_bytes(content)
    assert traces() == traced
  assert traces() == traced


def test_a_program_is_traced_again_once_code_or_settings_change(
  traces, monkeypatch, tmp_path
):
  code = tmp_path / 'transformer'
  (code / 'ops').mkdir(parents=True)
  monkeypatch.setattr(traced_programs, '_CODE', code)
  traced_programs._code.cache_clear()
  assert [traces(), traces()] == [1, 1]
  (code / 'ops' / 'one.py').write_text('a = 1')
  traced_programs._code.cache_clear()  # As in another process.
  assert traces() == 2
  with jax.default_matmul_precision('float32'):
    assert traces() == 3
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_enable_fast_math=true')
  assert traces() == 4
  monkeypatch.setattr(traced_programs.metadata, 'version', lambda name: '0.99')
  assert traces() == 5
  traced_programs._code.cache_clear()


def test_without_a_folder_that_can_be_written_nothing_is_kept(traces, folder):
  (folder / 'file').write_text('mine')
  for place in (None, str(folder / 'file/under')):
    jax.config.update('jax_compilation_cache_dir', place)
    before = traces()
    assert traces() == before + 1
  assert [path.name for path in folder.iterdir()] == ['file']


def test_a_program_with_code_from_elsewhere_is_not_kept(traces, folder):
  assert [traces(modules=(*MODULES, 'mine')), traces(modules=(*MODULES, 'mine'))] == [
    1,
    2,
  ]
  assert not [*folder.iterdir()]
