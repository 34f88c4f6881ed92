"""JAX's global switches: those that a run refuses, and those that it records."""

from collections.abc import Mapping
from typing import Any

import jax

from transformer.errors import UserError

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


def check_switches():
  """Refuses values of JAX's switches that runs do not work with.

  Raises:
    UserError: names each such switch, and how to set it.
  """
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

  Raises:
    UserError: names each switch that differs, with both values.
  """
  now = recorded_switches()
  changed = [f'{name} was {value}, is {now[name]}' for name, value in before.items()
             if now.get(name) != value]
  if changed:
    raise UserError(f'a run goes on with the same global switches of JAX: {"; ".join(changed)}; '
                    f'set the variable of that name in capitals to what it was')
