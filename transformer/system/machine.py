"""The machine of a process before JAX starts: cores, GPUs, memory, and what JAX is told of it."""

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
# The first rules out kernels whose order of addition varies, such as scatter. The second keeps XLA
# from choosing kernels by measured speed, which varies.
_REPRODUCIBLE = '--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0'


def usable_cores() -> int:
  """Returns the number of CPU cores that this process may use, as limited by `taskset` or Slurm."""
  if hasattr(os, 'sched_getaffinity'):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def named_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the names in CUDA_VISIBLE_DEVICES; as in CUDA, those from a negative number on hide."""
  value = environment.get('CUDA_VISIBLE_DEVICES', '')
  visible = re.split(r'(?:^|,)\s*-', value)[0]
  return re.findall(r'[^,\s]+', visible)


def keep_freed_memory():
  """Makes glibc keep freed memory for the next step.

  A step on a CPU takes its temporary arrays from `malloc` and frees them at its end. By default
  glibc returns blocks of that size to the system at once, and the next step pays for every page
  again: a seventh of a small model's step. Must be called before threads are started.
  """
  libc = ctypes.CDLL(None) if sys.platform.startswith('linux') else None
  if hasattr(libc, 'gnu_get_libc_version'):
    # Allocate everything in one arena, which only grows.
    libc.mallopt(_M_ARENA_MAX, 1)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)


def keep_compiled_programs(environment: MutableMapping):
  """Makes JAX keep compiled programs for the next process.

  Programs go to JAX_COMPILATION_CACHE_DIR if that is set, else to a private folder under
  XDG_CACHE_HOME or ~/.cache. JAX runs the programs in that folder, so nobody else may write
  to it. If this process cannot make the folder, it warns and keeps nothing.
  """
  if 'JAX_COMPILATION_CACHE_DIR' not in environment:
    try:
      home = environment.get('XDG_CACHE_HOME') or Path.home() / '.cache'
      folder = Path(
        home, 'attention-is-all-you-need-jax', f'compiled-{_kind_of_processor()}'
      )
      folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # There may be no home.
      logging.warning(
        'compiled programs are not kept for the next start: %s; set JAX_COMPILATION_CACHE_DIR to '
        'another folder',
        error,
      )
      return
    environment['JAX_COMPILATION_CACHE_DIR'] = str(folder)
  # By default JAX keeps only what took a second to compile; a start has dozens that take less.
  environment.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
  # On some processors XLA logs errors about features for every program that it loads. With an
  # accelerator, errors may be about the accelerator, so they stay.
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
  """Restricts XLA to kernels that always give the same bits; on a CPU all kernels do.

  XLA reads the flags when the first device is used, and takes the last of contrary ones.
  """
  environment['XLA_FLAGS'] = (
    f'{environment.get("XLA_FLAGS", "")} {_REPRODUCIBLE}'.strip()
  )
