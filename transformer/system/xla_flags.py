"""Sets flags of XLA in the environment; imports neither XLA nor JAX."""

import functools
import importlib.util
import mmap
from collections.abc import MutableMapping
from pathlib import Path

from absl import logging

# The first flag rules out kernels whose order of addition varies (scatter, fused attention's
# backward pass), and makes libraries choose kernels by fixed rules. The second keeps XLA from
# choosing kernels by measured speed, which varies.
REPRODUCIBLE_FLAGS = ('--xla_gpu_deterministic_ops=true', '--xla_gpu_autotune_level=0')
_XLA = '*jax_common.*'  # The part of jaxlib that parses XLA_FLAGS.


def set_reproducible_flags(environment: MutableMapping[str, str]):
  """Restricts XLA to kernels that always give the same bits; on a CPU all kernels do.

  Replaces contrary flags. Leaves out, with a warning, a flag that the installed jaxlib does
  not know.

  Args:
    environment: `os.environ`; its XLA_FLAGS are read when the first device is used.
  """
  ours = {flag.partition('=')[0]: flag for flag in REPRODUCIBLE_FLAGS}
  others = [flag for flag in environment.get('XLA_FLAGS', '').split()
            if flag.partition('=')[0] not in ours]
  known = [flag for name, flag in ours.items() if knows_flag(name)]
  if len(known) < len(ours):
    logging.warning('train.reproducible sets %s; the installed jaxlib knows only %s; on a GPU two '
                    'runs may differ', ' '.join(ours.values()), ' '.join(known) or 'none')
  environment['XLA_FLAGS'] = ' '.join((*others, *known))


@functools.cache
def knows_flag(name: str) -> bool:
  """Returns whether the installed jaxlib knows an XLA flag; an unknown flag ends the process.

  JAX itself can tell only after it has started, which is too late to set a flag. So this
  searches jaxlib's library for the name.

  Args:
    name: the flag, such as `--xla_gpu_autotune_level`.

  Returns:
    Also False if there is no jaxlib, or its library is in an unexpected place.
  """
  package = importlib.util.find_spec('jaxlib')
  for folder in (package and package.submodule_search_locations) or ():
    for path in Path(folder).glob(_XLA):
      with (path.open('rb') as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library):
        return library.find(b'\0%b\0' % name.removeprefix('--').encode()) >= 0
  return False
