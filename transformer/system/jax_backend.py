"""JAX as it is installed and set: faults that it must not have, and switches of runs.

A wrong backend raises no error: a run trains, and its figures are wrong. Each of `CASES` has an
exact answer, and has failed on a release that pip installed. A new case is a row.
"""

import importlib.metadata
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.errors import UserError, type_and_message

# The values that a run and its readers work with.
_WANTED = {
    'jax_enable_x64': (False,),  # Random numbers and the types of the state would be others.
    'jax_numpy_dtype_promotion': ('standard',),  # Flax and Optax promote types, too.
    'jax_disable_jit': (False,),  # The programs of a run are compiled for its devices.
    # Log lines read numbers. `jax_transfer_guard` sets all three.
    **dict.fromkeys(('jax_transfer_guard_host_to_device', 'jax_transfer_guard_device_to_host',
                     'jax_transfer_guard_device_to_device'),
                    (None, 'log', 'log_explicit', 'allow')),
}
# They change the numbers of a run.
_RECORDED = ('jax_threefry_partitionable', 'jax_default_matmul_precision')


class Case(NamedTuple):
  """A computation with a known answer."""

  source: str  # Where the fault is described.
  platform: str  # The JAX backend with the fault, such as `cpu`.
  compute: Callable[[], float]
  answer: float  # Exactly.
  advice: str  # The command that installs another release.


def _sum_of_squares_of_the_last_row() -> float:
  """Multiplies many short rows by a matrix, then squares and sums each."""
  rows_RD = np.zeros((32_769, 3), np.float32)
  rows_RD[:, 0] = np.arange(len(rows_RD))
  identity_DD = np.eye(3, dtype=np.float32)
  sums_R = jax.jit(jax.vmap(lambda row_D: ((identity_DD @ row_D) ** 2).sum()))(rows_RD)
  return float(sums_R[-1])


CASES = (
    Case('jax-ml/jax#39103', 'cpu', _sum_of_squares_of_the_last_row, 32_768.0 ** 2,
         "pip install 'jax!=0.10.2'"),
)


def check_backend():
  """Refuses a JAX without a backend, with a backend that is wrong, or with other switches."""
  check_switches()
  try:
    platform = jax.default_backend()
  except (RuntimeError, AssertionError) as error:
    if not (wanted := os.environ.get('JAX_PLATFORMS')):
      raise
    raise UserError(f'JAX cannot use JAX_PLATFORMS={wanted}: {type_and_message(error)[:200]}; '
                    f'install the JAX for it as the README says, or unset JAX_PLATFORMS') from error
  for case in CASES:
    if case.platform != platform:
      continue
    answer = case.compute()
    if answer != case.answer:
      raise UserError(
          f'the installed jaxlib {importlib.metadata.version("jaxlib")} computes wrong numbers: '
          f'{case.source} must give {case.answer:.0f} on a {platform}, and gives {answer:.0f}; '
          f'install another release: {case.advice}')


def check_switches():
  """Refuses values of JAX's switches that runs do not work with."""
  wrong = [f'{name}={value} (wanted: {wanted[-1]})' for name, wanted in _WANTED.items()
           if (value := getattr(jax.config, name)) not in wanted]
  if wrong:
    raise UserError(f'runs do not work with a global switch of JAX: {", ".join(wrong)}; unset the '
                    f'variable of that name in capitals, such as JAX_ENABLE_X64, or set the switch '
                    f'back with jax.config.update')


def recorded_switches() -> dict[str, Any]:
  """Returns the values of the switches that change the numbers of a run."""
  return {name: getattr(jax.config, name) for name in _RECORDED}


def check_same_switches(before: Mapping[str, Any]):
  """Refuses to go on with other values than `recorded_switches` gave before.

  Args:
    before: those values; empty for a run of a version that recorded none.
  """
  now = recorded_switches()
  changed = [f'{name} was {value}, is {now[name]}' for name, value in before.items()
             if now.get(name) != value]
  if changed:
    raise UserError(f'a run goes on with the same global switches of JAX: {"; ".join(changed)}; '
                    f'set the variable of that name in capitals to what it was')
