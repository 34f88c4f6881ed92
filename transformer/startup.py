"""What JAX and XLA must be told before they are imported; neither is imported here."""

import contextlib
import functools
import hashlib
import importlib.util
import mmap
import os
import platform
import time
from collections.abc import MutableMapping
from pathlib import Path

from absl import logging

# The first rules out kernels that add in an order of their own (scatter, fused
# attention's backward pass), and makes libraries pick theirs by rule. The second
# keeps XLA from picking kernels by how fast they happened to be this time.
REPRODUCIBLE_FLAGS = ('--xla_gpu_deterministic_ops=true', '--xla_gpu_autotune_level=0')
_UNUSED_DAYS = 60
_XLA = '*jax_common.*'  # The part of jaxlib that parses XLA_FLAGS.


def keep_compiled_programs(environment: MutableMapping[str, str]):
  """Makes JAX keep what it compiles for the next process, and quietly.

  Programs go to JAX_COMPILATION_CACHE_DIR if that is set, else to a folder of the
  user's own under XDG_CACHE_HOME or ~/.cache; JAX runs whatever lies there, so
  others must not write to it. A folder that cannot be made or written to is
  warned of, and the run goes on without; JAX does the same with a damaged file.

  Args:
    environment: `os.environ`, in which JAX finds its settings when it is imported.
  """
  if 'JAX_COMPILATION_CACHE_DIR' not in environment:
    home = environment.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    folder = Path(home, 'attention-is-all-you-need-jax', f'compiled-{_kind_of_processor()}')
    try:
      if not folder.is_absolute():
        raise FileNotFoundError(2, 'there is no home directory')
      folder.mkdir(mode=0o700, parents=True, exist_ok=True)
      if not os.access(folder, os.W_OK):
        raise PermissionError(13, 'it may not be written to')
      _remove_unused(folder)
    except OSError as error:
      logging.warning('compiled programs are not kept for the next start: %s: %s; set '
                      'JAX_COMPILATION_CACHE_DIR to another folder', folder, error.strerror)
      return
    environment['JAX_COMPILATION_CACHE_DIR'] = str(folder)
  # By default only what took a second to compile; a start meets dozens that took less.
  environment.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
  # On some processors XLA complains of features such as `prefer-no-gather` whenever it
  # loads a program, though it is the machine that compiled it. With an accelerator
  # installed its errors may be about that, and are left alone.
  if not (importlib.util.find_spec('jax_plugins') or importlib.util.find_spec('libtpu')):
    environment.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


def be_reproducible(environment: MutableMapping[str, str]):
  """Keeps XLA to kernels that give the same bits every time; on a CPU they all do.

  Flags that contradict are replaced. One that the installed jaxlib does not know is left
  out, with a warning.

  Args:
    environment: `os.environ`; its XLA_FLAGS are read when the first device is used.
  """
  ours = {flag.partition('=')[0]: flag for flag in REPRODUCIBLE_FLAGS}
  others = [flag for flag in environment.get('XLA_FLAGS', '').split()
            if flag.partition('=')[0] not in ours]
  known = [flag for name, flag in ours.items() if knows_flag(name)]
  if len(known) < len(ours):
    logging.warning('train.reproducible sets %s, of which the installed jaxlib knows only %s; on a '
                    'GPU two runs may differ', ' '.join(ours.values()), ' '.join(known) or 'none')
  environment['XLA_FLAGS'] = ' '.join((*others, *known))


@functools.cache
def knows_flag(name: str) -> bool:
  """Whether the installed jaxlib knows an XLA flag; XLA ends a process that sets another.

  JAX can be asked only once it has started, which is too late to set one. So this looks for the
  name among the strings of jaxlib's library.

  Args:
    name: of the flag, such as `--xla_gpu_autotune_level`.

  Returns:
    False, too, where there is no jaxlib, or its library is not where it has been.
  """
  package = importlib.util.find_spec('jaxlib')
  for folder in (package and package.submodule_search_locations) or ():
    for path in Path(folder).glob(_XLA):
      with (path.open('rb') as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library):
        return library.find(b'\0%b\0' % name.removeprefix('--').encode()) >= 0
  return False


def _kind_of_processor() -> str:
  """The same for machines that can run each other's programs, which may share a home."""
  features = platform.machine()
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as lines:
      features = next((line for line in lines if line.startswith(('flags', 'Features'))), features)
  except OSError:
    pass  # Not Linux.
  return hashlib.sha256(features.encode()).hexdigest()[:8]


def _remove_unused(folder: Path):
  """Removes what has not been read for long: versions and models that are gone."""
  oldest = time.time() - _UNUSED_DAYS * 86_400
  for entry in os.scandir(folder):
    with contextlib.suppress(FileNotFoundError):  # Another process was quicker.
      if entry.is_file() and max(entry.stat().st_atime, entry.stat().st_mtime) < oldest:
        os.unlink(entry.path)
