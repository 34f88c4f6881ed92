"""The lock that lets only one process train in a run's directory."""

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import BinaryIO

from absl import logging

from transformer.errors import UserError

LOCK = 'lock.json'


class RunLock:
  """A context manager that holds the right to write to a run's directory, and creates it.

  The kernel locks a file, and unlocks it when the process ends; NFS and other network file systems
  tell other machines of it. The file names its holder.
  """

  def __init__(self, workdir: str | os.PathLike):
    self._workdir = Path(workdir).absolute()
    self._path = self._workdir / LOCK

  def __enter__(self) -> 'RunLock':
    """Takes the lock; raises `UserError` if another run holds it."""
    folders = [self._workdir, *self._workdir.parents]
    self._made = [folder for folder in folders if not folder.exists()]
    self._workdir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
      is_there = False
      while not is_there:
        file = opened.enter_context(open(self._path, 'a+b', buffering=0))
        self._lock(file)
        with contextlib.suppress(FileNotFoundError):  # Its holder has just removed it.
          is_there = os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
      with contextlib.suppress(OSError):  # On a full disk, the holder has no name.
        file.truncate(0)
        file.write(
          json.dumps({'host': socket.gethostname(), 'process': os.getpid()}).encode()
        )
      self._opened = opened.pop_all()
    return self

  def __exit__(self, *_):
    """Releases the lock, and removes the directories that it created if they are empty."""
    with self._opened, contextlib.suppress(OSError):
      self._path.unlink()
      for folder in self._made:
        folder.rmdir()

  def _lock(self, file: BinaryIO):
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      holder = {}
      with contextlib.suppress(ValueError):  # It has written nothing yet.
        file.seek(0)
        holder = json.loads(file.read())
      raise UserError(
        f'{self._workdir} is in use by process {holder.get("process", "unknown")} on host '
        f'{holder.get("host", "unknown")}; wait for that run, stop it, or choose another --workdir'
      ) from error
    except OSError as error:
      logging.warning(
        '%s cannot be locked: %s; start no other run in this directory',
        self._path,
        error.strerror,
      )
