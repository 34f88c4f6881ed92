"""Makes the C library keep freed memory for the next step, in huge pages.

A step on a CPU takes its temporary arrays from `malloc` and frees them at its end. By
default glibc returns blocks of that size to the system at once. The next step then pays
for every page again, which takes a fifth of a small model's step.
"""

import ctypes
import os
import sys

# <malloc.h> and <sys/mman.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 2 << 20


def keep_freed_memory() -> bool:
  """Makes `malloc` keep freed memory for this process, in huge pages.

  Only marks address space, half as large as the machine's memory, and takes no memory yet.
  Must be called before threads are started.

  Returns:
    Whether the C library supports this; if not, nothing has changed.
  """
  if not sys.platform.startswith('linux'):
    return False
  libc = ctypes.CDLL(None)
  if not hasattr(libc, 'gnu_get_libc_version'):
    return False
  # Allocate everything in one arena, which only grows.
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
