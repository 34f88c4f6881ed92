"""Packages that a tool requires in addition to the core's requirements."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from transformer.errors import UserError


@contextlib.contextmanager
def requirements(module: str) -> Iterator[None]:
  """Raises `UserError` with the pip command that installs a package if its import fails.

  `module` is a file of the tool, in the folder of its requirements.txt.
  """
  try:
    yield
  except ImportError as error:
    package = (error.name or 'a package').partition('.')[0]
    path = Path(module).absolute().with_name('requirements.txt')
    command = [sys.executable, '-m', 'pip', 'install', '-r', str(path)]
    reason = f'needs {package}, which is not installed'
    if not isinstance(error, ModuleNotFoundError):
      reason = f'needs {package}, which cannot be imported: {error}'
    raise UserError(
      f'this tool {reason}; install it with: {shlex.join(command)}'
    ) from error
