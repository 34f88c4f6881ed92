"""The memory of a device."""

from collections.abc import Iterator
from pathlib import Path

import jax


def capacity(root: Path = Path('/')) -> int | None:
  """Returns the bytes that a device has free for this process; None if it cannot be known.

  For an accelerator, this is the share that JAX may use. For a CPU, it is the machine's memory or
  the limit of this process or its control groups, divided among JAX's virtual devices. Memory that
  this process already uses is subtracted. Memory of other processes is not, because it varies.

  Args:
    root: root of the file system with /proc and /sys.
  """
  device = jax.local_devices()[0]
  stats = device.memory_stats()
  if stats and 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  if device.platform != 'cpu':
    return None
  free = [limit - _used(root) for limit in _host_limits(root)]
  free.extend(_free_address_space(root))
  return max(min(free), 0) // jax.local_device_count() if free else None


def _host_limits(root: Path) -> Iterator[int]:
  """Yields the machine's memory and the limits of this process's control groups, in bytes."""
  yield from _kilobytes(root / 'proc/meminfo', 'MemTotal:')
  for line in _lines(root / 'proc/self/cgroup'):
    _, controllers, group = line.split(':', 2)
    # Version 2 has a single tree and names no controller. A container's root is its own group.
    if not controllers:
      top, name = root / 'sys/fs/cgroup', 'memory.max'
    elif 'memory' in controllers.split(','):
      top, name = root / 'sys/fs/cgroup/memory', 'memory.limit_in_bytes'
    else:
      continue
    path = Path(group.strip().lstrip('/'))
    for folder in (path, *path.parents):
      yield from (int(text) for text in _lines(top / folder / name) if text.strip().isdecimal())


def _used(root: Path) -> int:
  """Returns the bytes that this process uses, without pages that are backed by files."""
  return sum(_kilobytes(root / 'proc/self/status', 'RssAnon:'))


def _free_address_space(root: Path) -> Iterator[int]:
  """Yields the bytes that `ulimit -v` leaves to this process, if there is such a limit."""
  for line in _lines(root / 'proc/self/limits'):
    if line.startswith('Max address space') and (limit := line.split()[3]).isdecimal():
      yield from (int(limit) - used for used in _kilobytes(root / 'proc/self/status', 'VmSize:'))


def _kilobytes(path: Path, name: str) -> Iterator[int]:
  """Yields the bytes of each line such as `MemTotal: 12 kB`."""
  yield from (1024 * int(line.split()[1]) for line in _lines(path) if line.startswith(name))


def _lines(path: Path) -> list[str]:
  """Returns the lines of a file; none if it cannot be read."""
  try:
    return path.read_text(encoding='utf-8').splitlines()
  except OSError:
    return []
