"""How much memory a device has."""

from collections.abc import Iterator
from pathlib import Path

import jax


def capacity(root: Path = Path('/')) -> int | None:
  """Bytes that a device has for what is still to come; None if it does not say.

  Of an accelerator that is the share that JAX may use. A CPU has the machine's
  memory, or what the control groups of this process allow; its virtual devices
  share it. What this process holds already is taken off, and what others hold is
  not, since that comes and goes.

  Args:
    root: where the system's own files are found.
  """
  device = jax.local_devices()[0]
  stats = device.memory_stats()
  if stats and 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  if device.platform != 'cpu':
    return None
  limits = list(_host_limits(root))
  if not limits:
    return None
  return max(min(limits) - _held(root), 0) // jax.local_device_count()


def _host_limits(root: Path) -> Iterator[int]:
  """The machine's memory, and the limits of the control groups that this process is in."""
  yield from _kilobytes(root / 'proc/meminfo', 'MemTotal:')
  for line in _lines(root / 'proc/self/cgroup'):
    _, controllers, group = line.split(':', 2)
    # Version 2 has one tree and names no controller; in a container its own group is the root.
    if not controllers:
      top, name = root / 'sys/fs/cgroup', 'memory.max'
    elif 'memory' in controllers.split(','):
      top, name = root / 'sys/fs/cgroup/memory', 'memory.limit_in_bytes'
    else:
      continue
    path = Path(group.strip().lstrip('/'))
    for folder in (path, *path.parents):
      yield from (int(text) for text in _lines(top / folder / name) if text.strip().isdecimal())


def _held(root: Path) -> int:
  """Bytes that this process holds and that cannot be read again from a file."""
  return sum(_kilobytes(root / 'proc/self/status', 'RssAnon:'))


def _kilobytes(path: Path, name: str) -> Iterator[int]:
  """Bytes, from a line such as `MemTotal: 12 kB`."""
  yield from (1024 * int(line.split()[1]) for line in _lines(path) if line.startswith(name))


def _lines(path: Path) -> list[str]:
  """A file's lines; none where there is no such file."""
  try:
    return path.read_text(encoding='utf-8').splitlines()
  except OSError:
    return []
