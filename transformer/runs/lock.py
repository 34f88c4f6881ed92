"""The lock that lets only one process train in a run's directory.

filelock's `SoftFileLease` has a heartbeat, too. With it, a run that died long ago on another
machine could start again only after two minutes, and a killed process that nobody has reaped,
as in a container, would keep its lock.
"""

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from absl import logging

from transformer import files
from transformer.errors import UserError

LOCK = 'lock.json'
_BEAT_SECONDS = 15.0  # Time between two heartbeats.
_EXPIRES_SECONDS = 120.0  # A holder on another machine without a heartbeat for this time is dead.


class RunLock:
  """A context manager that holds the right to write to a run's directory, and creates it.

  The kernel locks a file, and unlocks it when the process ends. Other machines may not see that.
  So the file also names its holder, and its modification time is the holder's heartbeat.
  """

  def __init__(self, workdir: str | os.PathLike):
    self._workdir = Path(workdir).absolute()
    self._path = self._workdir / LOCK
    self._stop = threading.Event()
    # The id distinguishes this lock from an earlier lock of the same process.
    self._content = json.dumps(
      {
        'host': socket.gethostname(),
        'process': os.getpid(),
        'machine': files.machine_id(),
        'id': uuid.uuid4().hex,
      }
    ).encode()

  def __enter__(self) -> 'RunLock':
    """Takes the lock, also from a dead holder; raises `UserError` if another run holds it."""
    self._made = [
      folder for folder in (self._workdir, *self._workdir.parents) if not folder.exists()
    ]
    self._workdir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
      while True:
        file = opened.enter_context(open(self._path, 'a+b', buffering=0))
        with contextlib.suppress(FileNotFoundError):  # Its holder has just removed it.
          self._check_dead(is_locked=self._lock(file))
          if os.path.samestat(os.fstat(file.fileno()), os.stat(self._path)):
            break
      try:
        file.truncate(0)
        file.write(self._content)
      except OSError as error:
        self._path.unlink()
        raise UserError(
          f'{self._path} cannot be written: {error.strerror}; make room, then start again'
        ) from error
      self._opened = opened.pop_all()
    self._thread = threading.Thread(target=self._beat, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_):
    """Releases the lock, and removes the directories that it created if they are empty."""
    self._stop.set()
    self._thread.join()
    with self._opened, contextlib.suppress(OSError):
      if self._path.read_bytes() == self._content:
        self._path.unlink()
      for folder in self._made:
        folder.rmdir()

  def _lock(self, file: BinaryIO) -> bool:
    """Locks a file; returns False if its file system knows no locks."""
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise self._in_use() from error
    except OSError:
      return False
    return True

  def _check_dead(self, is_locked: bool):
    """Raises `UserError` if the holder that the file names lives; a new file names none."""
    holder = self._holder()
    seen = self._path.stat()
    if seen.st_size == 0 or (is_locked and holder.get('machine') == files.machine_id() is not None):
      return
    probe = files.unfinished_name(self._path)  # The file system's clock may be another machine's.
    probe.touch()
    age = probe.stat().st_mtime - seen.st_mtime
    probe.unlink()
    # A clock that was set back puts the heartbeat into the future: then wait the whole time.
    left = _EXPIRES_SECONDS - max(0.0, age)
    deadline = time.monotonic() + left
    logging.info(
      '%s names %s; waiting up to %.0f seconds for its heartbeat',
      self._path,
      _name(holder),
      max(0.0, left),
    )
    while time.monotonic() < deadline:
      time.sleep(min(1.0, _BEAT_SECONDS / 2))
      if self._path.stat().st_mtime_ns != seen.st_mtime_ns:
        raise self._in_use()

  def _beat(self):
    """Sets the file's time at each heartbeat; ends the process if the lock is another run's."""
    while not self._stop.wait(_BEAT_SECONDS):
      with contextlib.suppress(OSError):  # An absent file server may come back.
        if self._path.read_bytes() != self._content:
          print(
            f'error: {self._workdir} was taken over by {_name(self._holder())}, since this '
            f'process had no heartbeat for too long; this process stops',
            file=sys.stderr,
            flush=True,
          )
          os._exit(1)  # Before it can write anything else.
        os.utime(self._path)

  def _holder(self) -> dict[str, Any]:
    """Returns what the lock file says; nothing if its holder has not written it yet."""
    try:
      return json.loads(self._path.read_bytes())
    except (OSError, ValueError):
      return {}

  def _in_use(self) -> UserError:
    return UserError(
      f'{self._workdir} is in use by {_name(self._holder())}; wait for that run, '
      f'stop it, or choose another --workdir; if the directory is a copy, remove '
      f'the {LOCK} in it'
    )


def _name(holder: dict[str, Any]) -> str:
  return f'process {holder.get("process", "unknown")} on host {holder.get("host", "unknown")}'
