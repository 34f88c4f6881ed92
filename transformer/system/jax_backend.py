"""JAX as it is installed and set: faults that it must not have, and switches of runs."""

import os
from collections.abc import Mapping
from typing import Any

import jax
import jaxlib

from transformer.errors import UserError, type_and_message

# They compute some sums wrongly on a CPU, without an error: jax-ml/jax#39103.
_WRONG_VERSIONS = ('0.10.2',)
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


def check_backend():
  """Refuses a JAX without a backend, of a version that is wrong, or with other switches."""
  wrong = [f'{name}={value} (wanted: {wanted[-1]})' for name, wanted in _WANTED.items()
           if (value := getattr(jax.config, name)) not in wanted]
  if wrong:
    raise UserError(f'runs do not work with a global switch of JAX: {", ".join(wrong)}; unset the '
                    f'variable of that name in capitals, such as JAX_ENABLE_X64, or set the switch '
                    f'back with jax.config.update')
  try:
    platform = jax.default_backend()
  except (RuntimeError, AssertionError) as error:
    if not (wanted := os.environ.get('JAX_PLATFORMS')):
      raise
    raise UserError(f'JAX cannot use JAX_PLATFORMS={wanted}: {type_and_message(error)[:200]}; '
                    f'install the JAX for it as the README says, or unset JAX_PLATFORMS') from error
  if platform == 'cpu' and jaxlib.__version__ in _WRONG_VERSIONS:
    raise UserError(f'the installed jaxlib {jaxlib.__version__} computes wrong numbers on a CPU; '
                    f"install another release: pip install 'jax!={jaxlib.__version__}'")


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
