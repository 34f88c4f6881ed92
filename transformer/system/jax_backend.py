"""Checks the installed JAX: its backend, its version, and the switches that runs depend on."""

import os
from collections.abc import Mapping

import jax
import jaxlib

from transformer.errors import UserError, type_and_message

# Versions that compute some sums wrongly on a CPU, without an error: jax-ml/jax#39103.
_WRONG_VERSIONS = ('0.10.2',)
_REQUIRED = {
  'jax_enable_x64': False,  # It changes random numbers and the dtypes of the state.
  'jax_numpy_dtype_promotion': 'standard',  # Flax and Optax rely on type promotion, too.
  'jax_disable_jit': False,  # The programs of a run are compiled for its devices.
}
# Switches that change the numbers of a run.
_RECORDED = ('jax_threefry_partitionable', 'jax_default_matmul_precision')


def check_backend():
  """Raises `UserError` if JAX lacks a backend, is a broken version, or has unsupported options."""
  check_switches(_REQUIRED)
  try:
    platform = jax.default_backend()
  except (RuntimeError, AssertionError) as error:
    if not (platforms := os.environ.get('JAX_PLATFORMS')):
      raise
    raise UserError(
      f'JAX cannot use JAX_PLATFORMS={platforms}: {type_and_message(error)}; '
      f'install JAX for that platform (see the README), or unset JAX_PLATFORMS'
    ) from error
  if platform == 'cpu' and jaxlib.__version__ in _WRONG_VERSIONS:
    raise UserError(
      f'the installed jaxlib {jaxlib.__version__} gives incorrect results on CPU; '
      f"install a different release: pip install 'jax!={jaxlib.__version__}'"
    )


def recorded_switches() -> dict:
  """Returns the values of the switches that change the numbers of a run."""
  return {name: getattr(jax.config, name) for name in _RECORDED}


def check_switches(required: Mapping):
  """Raises `UserError` if a switch of JAX differs from its value in `required`."""
  changed = [
    f'{name}={now}, which must be {value}'
    for name, value in required.items()
    if (now := getattr(jax.config, name, None)) != value
  ]
  if changed:
    raise UserError(
      f'unsupported JAX configuration: {"; ".join(changed)}; reset it with jax.config.update, '
      'or change the environment variable of that name in capitals, such as JAX_ENABLE_X64'
    )
