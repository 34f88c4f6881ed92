"""A JAX that gives incorrect results, or has unsupported flags, is rejected."""

import jax
import jaxlib
import pytest

from tests.tiny_training import Settings
from transformer import files
from transformer.errors import UserError
from transformer.experiment.train_loop import train_run
from transformer.runs import record, run_directory
from transformer.runs.loading import load_run
from transformer.system import jax_backend
from transformer.system.jax_backend import check_backend


def test_a_jaxlib_that_computes_wrongly_is_rejected_before_anything_is_written(
  monkeypatch, tmp_path
):
  check_backend()
  monkeypatch.setattr(jax_backend, '_WRONG_VERSIONS', (jaxlib.__version__,))
  for use in (
    check_backend,
    lambda: load_run(tmp_path),
    lambda: train_run(Settings(), tmp_path / 'run'),
  ):
    with pytest.raises(UserError, match='gives incorrect results') as error:
      use()
    assert '\n' not in str(error.value)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'error', [AssertionError(), RuntimeError("Unknown backend\n'x'")]
)
def test_a_platform_that_is_not_there_is_a_one_line_error(monkeypatch, error):
  def fail():
    raise error

  monkeypatch.setattr(jax, 'default_backend', fail)
  monkeypatch.setenv('JAX_PLATFORMS', 'cuda')
  with pytest.raises(UserError, match='JAX cannot use JAX_PLATFORMS=cuda: ') as caught:
    check_backend()
  assert '\n' not in str(caught.value)
  monkeypatch.delenv('JAX_PLATFORMS')
  with pytest.raises(type(error)):
    check_backend()


REJECTED = {
  'jax_enable_x64': lambda: jax.enable_x64(True),
  'jax_numpy_dtype_promotion': lambda: jax.numpy_dtype_promotion('strict'),
  'jax_disable_jit': lambda: jax.disable_jit(True),
}
RECORDED = {
  'jax_threefry_partitionable': lambda: jax.threefry_partitionable(False),
  'jax_default_matmul_precision': lambda: jax.default_matmul_precision('highest'),
}


@pytest.mark.parametrize('name', REJECTED)
def test_an_unsupported_jax_flag_is_rejected_by_name(name):
  with (
    REJECTED[name](),
    pytest.raises(UserError, match=f'unsupported JAX configuration: {name}') as error,
  ):
    check_backend()
  assert '\n' not in str(error.value)
  check_backend()


@pytest.mark.parametrize('name', RECORDED)
def test_a_run_resumes_only_with_the_recorded_jax_flags(tmp_path, name):
  path = tmp_path / run_directory.RUN
  record.write_record(tmp_path, False)
  with RECORDED[name]():
    check_backend()
    with pytest.raises(
      UserError, match=f'unsupported JAX configuration: {name}=.*, which must be '
    ):
      record.add_session(tmp_path, False, {}, True, {})
    # It is finished, and only reports.
    record.add_session(tmp_path, False, {}, False, {})
  record.add_session(tmp_path, False, {}, True, {})
  about = files.read_sealed(path, 'the record')
  assert [session['trains'] for session in about['resumed']] == [False, True]
