"""The machine before JAX starts: cores, GPUs, memory, and environment variables for JAX."""

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from absl import logging

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
# The first excludes kernels whose order of addition varies, such as scatter. The second disables
# autotuning, which selects kernels by measured speed and so may vary.
_REPRODUCIBLE = '--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0'


def usable_cores() -> int:
  """Returns the number of CPU cores that this process may use, as limited by `taskset` or Slurm."""
  if hasattr(os, 'sched_getaffinity'):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def cuda_visible_devices(environment: Mapping[str, str]) -> list[str]:
  """Returns the names in CUDA_VISIBLE_DEVICES before the first negative number, as CUDA does."""
  value = environment.get('CUDA_VISIBLE_DEVICES', '')
  visible = re.split(r'(?:^|,)\s*-', value)[0]
  return re.findall(r'[^,\s]+', visible)


def keep_freed_memory():
  """Makes glibc keep freed memory for the next step.

  On a CPU, a step allocates its temporary arrays with `malloc` and frees them at its end. By
  default, glibc returns blocks of that size to the system at once, so the next step faults in every
  page again: a seventh of a small model's step. Must be called before threads are started.
  """
  libc = ctypes.CDLL(None) if sys.platform.startswith('linux') else None
  if hasattr(libc, 'gnu_get_libc_version'):
    # Allocate everything in one arena, which only grows.
    libc.mallopt(_M_ARENA_MAX, 1)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)


def enable_compilation_cache(environment: MutableMapping):
  """Enables JAX's compilation cache, which later processes reuse.

  The cache is in JAX_COMPILATION_CACHE_DIR if that is set, else in a private folder under
  XDG_CACHE_HOME or ~/.cache. JAX executes the programs in that folder, so nobody else may write to
  it. If the folder cannot be created, logs a warning and caches nothing.
  """
  if 'JAX_COMPILATION_CACHE_DIR' not in environment:
    try:
      home = environment.get('XDG_CACHE_HOME') or Path.home() / '.cache'
      folder = Path(
        home, 'attention-is-all-you-need-jax', f'compiled-{_kind_of_processor()}'
      )
      folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # There may be no home directory.
      logging.warning(
        'compiled programs are not cached: %s; set JAX_COMPILATION_CACHE_DIR to a different folder',
        error,
      )
      return
    environment['JAX_COMPILATION_CACHE_DIR'] = str(folder)
  # By default, JAX caches only programs that compile for a second; a start has dozens of others.
  environment.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
  # On some CPUs, XLA logs errors about CPU features for every program that it loads. With an
  # accelerator, an error may be about the accelerator, so errors are still logged.
  if not (
    importlib.util.find_spec('jax_plugins') or importlib.util.find_spec('libtpu')
  ):
    environment.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


def _kind_of_processor() -> str:
  """Returns an id shared by the machines that can run each other's compiled programs."""
  features = platform.machine()
  with contextlib.suppress(OSError), open('/proc/cpuinfo', encoding='utf-8') as lines:
    features = next(
      (line for line in lines if line.startswith(('flags', 'Features'))), features
    )
  return hashlib.sha256(features.encode()).hexdigest()[:8]


def set_reproducible_flags(environment: MutableMapping):
  """Restricts XLA to bit-reproducible kernels; on a CPU, all kernels are.

  XLA reads the flags when the first device is used; of conflicting flags, the last counts.
  """
  environment['XLA_FLAGS'] = (
    f'{environment.get("XLA_FLAGS", "")} {_REPRODUCIBLE}'.strip()
  )
