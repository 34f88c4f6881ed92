"""The machine of this process, found without JAX: its cores, its NVIDIA GPUs and its memory."""

import ctypes
import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

_GPUS = Path('/proc/driver/nvidia/gpus')
# <malloc.h> and <sys/mman.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 2 << 20


def usable_cores() -> int:
  """Returns the number of CPU cores that this process may use, as limited by `taskset` or Slurm."""
  if hasattr(os, 'sched_getaffinity'):  # Linux.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the GPUs for a process with this environment, by their CUDA_VISIBLE_DEVICES names."""
  if environment.get('JAX_PLATFORMS') == 'cpu':
    return []
  if 'CUDA_VISIBLE_DEVICES' in environment:
    return named_gpus(environment)
  return [str(number) for number, _ in enumerate(_GPUS.iterdir())] if _GPUS.is_dir() else []


def named_gpus(environment: Mapping[str, str]) -> list[str]:
  """Returns the names in CUDA_VISIBLE_DEVICES; as in CUDA, those from a negative number on hide."""
  names = [name.strip() for name in environment.get('CUDA_VISIBLE_DEVICES', '').split(',')]
  return [*itertools.takewhile(lambda name: not name.startswith('-'), filter(None, names))]


def keep_freed_memory():
  """Makes glibc keep freed memory, in huge pages, for the next step.

  A step on a CPU takes its temporary arrays from `malloc` and frees them at its end. By default
  glibc returns blocks of that size to the system at once, and the next step pays for every page
  again: a fifth of a small model's step. Must be called before threads are started.
  """
  libc = ctypes.CDLL(None) if sys.platform.startswith('linux') else None
  if not hasattr(libc, 'gnu_get_libc_version'):
    return
  # Allocate everything in one arena, which only grows.
  for option, value in ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1)):
    libc.mallopt(option, value)
  libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
  libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
  libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
  size = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2
  if start := libc.malloc(size):
    aligned = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    libc.madvise(aligned, start + size - aligned, _MADV_HUGEPAGE)
    libc.free(start)
