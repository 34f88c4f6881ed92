"""JAX's global switches work, are recorded or are refused, as docs/configuration.md says."""

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.ops.toy_language import LIMITS, B, N, tables, toy
from transformer import files
from transformer.errors import UserError
from transformer.ops.beam_search import beam_search
from transformer.ops.constrained_search import constrained_beam_search
from transformer.ops.phrases import Phrases
from transformer.runs import run_directory
from transformer.system.known_faults import check_backend

REFUSED = {'jax_enable_x64': lambda: jax.enable_x64(True),
           'jax_numpy_dtype_promotion': lambda: jax.numpy_dtype_promotion('strict'),
           'jax_disable_jit': lambda: jax.disable_jit(True),
           'jax_transfer_guard': lambda: jax.transfer_guard('disallow'),
           'jax_transfer_guard_host_to_device': (
               lambda: jax.transfer_guard_host_to_device('disallow_explicit'))}
RECORDED = {'jax_threefry_partitionable': lambda: jax.threefry_partitionable(False),
            'jax_default_matmul_precision': lambda: jax.default_matmul_precision('highest')}


@pytest.mark.parametrize('name', REFUSED)
def test_a_switch_that_runs_do_not_work_with_is_refused_by_name(name):
  with REFUSED[name](), pytest.raises(UserError, match=f'switch of JAX: {name}') as refusal:
    check_backend()
  assert '\n' not in str(refusal.value)
  check_backend()


@pytest.mark.parametrize('name', RECORDED)
def test_a_run_goes_on_only_with_the_values_of_the_switches_that_it_recorded(tmp_path, name):
  path = tmp_path / run_directory.RUN
  files.write_sealed(path, run_directory.describe({}, {}, 0, 0.0, False))
  with RECORDED[name]():
    check_backend()
    with pytest.raises(UserError, match=f'{name} was .*, is '):
      run_directory.add_session(tmp_path, False, {})
    run_directory.add_session(tmp_path, False, {}, trains=False)  # It has ended, and only reports.
  run_directory.add_session(tmp_path, False, {})
  about = files.read_sealed(path, 'the record')
  assert [each['trains'] for each in about['resumed']] == [False, True]
  about.pop('jax'), about['resumed'].clear()  # As versions before wrote it.
  files.write_sealed(path, about)
  with RECORDED[name]():
    run_directory.add_session(tmp_path, False, {})


def searches():
  """Returns what two searches find; the second is only traced, which takes less time."""
  limits, phrases = jnp.asarray(LIMITS, jnp.int32), Phrases(
      jnp.full((B, 1, 1), 3, jnp.int32), jnp.zeros(N, bool))
  language = toy(jnp.asarray(tables()), B, 3)
  given = language.step, language.cache, limits, language.options
  return (jax.device_get(jax.jit(lambda: beam_search(*given, beam_size=3))()),
          jax.eval_shape(lambda: constrained_beam_search(*given, phrases, beam_size=3)))


def test_searches_are_the_same_with_64_bits():
  wanted, traced = searches()
  with jax.enable_x64(True):
    found, traced_with_64_bits = searches()
  assert traced_with_64_bits == traced
  chex.assert_trees_all_close(found, wanted, rtol=1e-6)
  chex.assert_trees_all_equal_dtypes(found, wanted)
