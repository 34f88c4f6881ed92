"""The cores of the CPU: how many there are, and as devices of JAX; does not import JAX."""

import os
from collections.abc import MutableMapping

# More devices would load each compiled program more often than the batches of a text need.
_MOST = 4
_VARIABLE, _FLAG = 'JAX_NUM_CPU_DEVICES', '--xla_force_host_platform_device_count'


def use_cores_as_devices(environment: MutableMapping[str, str]):
  """Makes JAX divide the CPU into devices, one for each core, so that batches run side by side.

  There are 1, 2 or 4 devices, so that they can share batches of most sizes. What the user has set
  stays as it is.

  Args:
    environment: `os.environ`, which JAX reads when it is imported.
  """
  if _VARIABLE not in environment and _FLAG not in environment.get('XLA_FLAGS', ''):
    cores = min(usable_cores(), _MOST)
    environment[_VARIABLE] = str(1 << (cores.bit_length() - 1))


def usable_cores() -> int:
  """Returns the number of CPU cores that this process may use, as limited by `taskset` or Slurm."""
  if hasattr(os, 'sched_getaffinity'):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1
