"""Memory that the C library keeps for the next step, in huge pages.

A step on a CPU takes its temporary arrays from `malloc` and gives them back at
its end. By default glibc returns blocks of that size to the system at once, and
the next step pays for every page again: a fifth of a small model's step.
"""

import ctypes
import os
import sys

# <malloc.h> and <sys/mman.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 2 << 20


def keep() -> bool:
  """Makes `malloc` keep freed memory for this process, and lays it out in huge pages.

  Takes no memory now: address space of half the machine's memory is marked, and
  only what is used of it becomes real. To be called before threads are started.

  Returns:
    Whether this C library can do it; if not, nothing has changed.
  """
  if not sys.platform.startswith('linux'):
    return False
  libc = ctypes.CDLL(None)
  if not hasattr(libc, 'gnu_get_libc_version'):
    return False
  # One arena, which grows upwards and is never cut: no block is mapped for itself.
  kept = (libc.mallopt(_M_ARENA_MAX, 1) and libc.mallopt(_M_MMAP_MAX, 0)
          and libc.mallopt(_M_TRIM_THRESHOLD, -1))
  libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
  libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
  libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
  size = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2
  start = libc.malloc(size)
  if start:
    aligned = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    libc.madvise(aligned, start + size - aligned, _MADV_HUGEPAGE)
    libc.free(start)
  return bool(kept)
