"""Starts a PostgreSQL server in a new directory; needs root and Debian's postgresql.

  apt-get install --no-install-recommends postgresql
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Debian keeps the programs of each version in a folder of its own.
_BINARIES = [*sorted(Path('/usr/lib/postgresql').glob('*/bin')), Path('/usr/bin')]


def is_installed() -> bool:
  """Returns whether a server can be started here, and Python has a driver for it."""
  return (os.getuid() == 0 and _program('initdb') is not None
          and importlib.util.find_spec('psycopg') is not None)


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
  """Starts a server that listens only to a socket, and yields the URL of its database."""
  with tempfile.TemporaryDirectory() as folder:
    shutil.chown(folder, 'postgres')

    def run(program, *arguments):
      # The server refuses to run as root.
      subprocess.run([_program(program), f'--pgdata={folder}/data', *arguments], cwd=folder,
                     user='postgres', check=True, stdout=subprocess.DEVNULL, timeout=120)

    run('initdb', '--auth=trust', '--no-sync')
    run('pg_ctl', 'start', '--wait', f'--log={folder}/log',
        f'--options=-c listen_addresses= -c unix_socket_directories={folder}')
    try:
      yield f'postgresql+psycopg://postgres:secret@/postgres?host={folder}'
    finally:
      run('pg_ctl', 'stop', '--mode=immediate')


def _program(name: str) -> str | None:
  return shutil.which(name, path=os.pathsep.join(map(str, reversed(_BINARIES))))
