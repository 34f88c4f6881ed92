"""The lock that allows only one process to train in a run's directory."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from absl import logging

from transformer.errors import UserError

LOCK = 'lock.json'
# In the message of the error if another run holds the lock.
IN_USE = 'is in use by process'


@contextlib.contextmanager
def run_lock(workdir: Path) -> Iterator[None]:
  """Holds an exclusive lock on a run's directory, which it creates if needed.

  The lock is an `flock` on a file that names its holder. The kernel releases the lock when the
  process ends. Network file systems propagate the lock to other machines, unless mount options such
  as `localflock` on Lustre or `local_lock` on NFS make it local. On exit, removes the directories
  that it created if they are empty. Raises `UserError` if another run holds the lock.
  """
  path = workdir.absolute() / LOCK
  new_folders = [folder for folder in path.parents if not folder.exists()]
  path.parent.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as opened:
    is_current = False
    while not is_current:
      file = opened.enter_context(open(path, 'a+b', buffering=0))
      _lock(file, path)
      # The holder may just have removed the file.
      with contextlib.suppress(FileNotFoundError):
        is_current = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    with contextlib.suppress(OSError):  # On a full disk, the holder is not recorded.
      file.truncate(0)
      file.write(
        json.dumps({'host': socket.gethostname(), 'process': os.getpid()}).encode()
      )
    try:
      yield
    finally:
      with contextlib.suppress(OSError):
        path.unlink()
        for folder in new_folders:
          folder.rmdir()


def _lock(file: BinaryIO, path: Path):
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    holder = {}
    with contextlib.suppress(ValueError):  # The holder has not written its name yet.
      file.seek(0)
      holder = json.loads(file.read())
    raise UserError(
      f'{path.parent} {IN_USE} {holder.get("process", "unknown")} on host '
      f'{holder.get("host", "unknown")}; wait for that run, stop it, or choose a different '
      '--workdir'
    ) from error
  except OSError as error:
    logging.warning(
      '%s cannot be locked: %s; start no other run in this directory',
      path,
      error.strerror,
    )
