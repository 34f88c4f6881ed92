"""The cores of the CPU that this process may use; does not import JAX."""

import os


def usable_cores() -> int:
  """Returns the number of CPU cores that this process may use, as limited by `taskset` or Slurm."""
  if hasattr(os, 'sched_getaffinity'):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1
