"""The lock that lets only one process train in a run's directory.

filelock's `SoftFileLease` also has a heartbeat and takes over a dead holder's lock. With it,
users would lose four things:

| case | this lock | `SoftFileLease` |
| --- | --- | --- |
| the holder died long ago, on another machine | is taken at once | is watched for its time |
| the file server is away, or the lock was deleted | stays with its holder | is lost |
| the holder was killed, and is a zombie | is taken at once | stays with its holder |
| the lock file is half written | is watched for its time | is removed after 2 s |
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from transformer import files
from transformer.errors import UserError

LOCK = 'lock.json'
BEAT_SECONDS = 15.0
EXPIRES_SECONDS = 120.0


class _Record(NamedTuple):
  """A lock file: its bytes, the holder that they name if legible, and its last heartbeat."""

  content: bytes
  holder: dict[str, Any] | None
  beat: float


class RunLock:
  """A context manager that holds the right to write to a run's directory.

  The lock is a file that names its holder. A holder on the same machine is dead when no
  process has its number and its start time. A holder on another machine, or one whose start
  time /proc hides from this user, is dead when it has not set the file's modification time for
  `EXPIRES_SECONDS`, by the clock of the file system.
  A living holder sets that time every `BEAT_SECONDS`. Reading a run needs no lock.
  """

  def __init__(self, workdir: str | os.PathLike, *, beat_seconds: float = BEAT_SECONDS,
               expires_seconds: float = EXPIRES_SECONDS,
               lost: Callable[[str], None] | None = None):
    """Prepares the lock; nothing is written before the context is entered.

    Args:
      workdir: the run's directory; created, with its parents, when the context is entered.
      beat_seconds: time between two heartbeats.
      expires_seconds: time without a heartbeat after which a holder on another machine is dead.
      lost: called with a one-line message when another run has taken the lock; None
        ends the process at once, with status 1.
    """
    self._workdir = Path(workdir).absolute()
    self._path = self._workdir / LOCK
    self._beat_seconds = beat_seconds
    self._expires_seconds = expires_seconds
    self._lost = lost or _end
    self._stop = threading.Event()
    # The id distinguishes this lock from an earlier lock of the same process.
    self._content = json.dumps({
        'host': socket.gethostname(), 'process': os.getpid(), 'machine': files.machine_id(),
        'began': _began(os.getpid()), 'taken': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
        'id': uuid.uuid4().hex}).encode()

  def __enter__(self) -> 'RunLock':
    """Takes the lock, also from a dead holder.

    Raises:
      UserError: another run holds it; names that run's host and process.
    """
    self._made = [folder for folder in (self._workdir, *self._workdir.parents)
                  if not folder.exists()]
    self._workdir.mkdir(parents=True, exist_ok=True)
    while not self._create():
      record = self._read()
      if record is not None:
        self._check_dead(record)
        self._remove(record)
    self._thread = threading.Thread(target=self._beat, name='lock', daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_):
    """Releases the lock, and removes the directories that it created if they are empty."""
    self._stop.set()
    self._thread.join()
    record = self._read()
    if record is not None and record.content == self._content:
      self._path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
      for folder in self._made:
        folder.rmdir()

  def _create(self) -> bool:
    """Creates the lock file; returns False if there is one."""
    try:
      file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
      return False
    try:
      os.write(file, self._content)
    except OSError as error:
      self._path.unlink(missing_ok=True)
      raise UserError(f'{self._path} cannot be written: {error.strerror}; make room, then start '
                      f'again') from error
    finally:
      os.close(file)
    return True

  def _read(self) -> _Record | None:
    """Reads the lock file; returns None if there is none."""
    try:
      # Opening the file makes a network file system ask its server for the current one.
      with self._path.open('rb') as file:
        content, beat = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
      return None
    try:
      holder = json.loads(content)
      holder = holder if {'host', 'process', 'machine', 'began'} <= holder.keys() else None
    except (ValueError, AttributeError):
      holder = None  # The holder was killed while it wrote the file, or has not written it yet.
    return _Record(content, holder, beat)

  def _check_dead(self, record: _Record):
    """Raises `UserError` if the holder lives; returns once it is dead or has released the lock."""
    holder, machine = record.holder, files.machine_id()
    if holder is not None and machine is not None and holder['machine'] == machine:
      began = _began(holder['process'])
      if began == holder['began']:
        raise self._taken(record)
      if began is not None or not _may_be_hidden(holder['process']):
        logging.info('taking over the run from process %s, which is gone', holder['process'])
        return
    age = self._now() - record.beat
    # A clock that was set back puts the heartbeat into the future: then wait the whole time.
    deadline = time.monotonic() + self._expires_seconds - max(0.0, age)
    if (wait := deadline - time.monotonic()) > 0:
      logging.info('%s is held by %s, whose last heartbeat was %.0f seconds ago; waiting up to '
                   '%.0f seconds for another', self._path, _name(holder), max(0.0, age), wait)
    while time.monotonic() < deadline:
      time.sleep(min(1.0, self._beat_seconds / 2))
      now = self._read()
      if now is None:
        return
      if now != record:
        raise self._taken(now)
    logging.info('taking over the run from %s, which has had no heartbeat for %.0f seconds',
                 _name(holder), self._expires_seconds)

  def _taken(self, record: _Record) -> UserError:
    return UserError(f'{self._workdir} is in use by {_name(record.holder)}; wait for that run, '
                     f'stop it, or choose another --workdir; if the directory is a copy, remove '
                     f'the {LOCK} in it')

  def _remove(self, record: _Record):
    """Removes a dead holder's lock, unless another process has already taken it over."""
    try:
      with self._path.open('rb') as file:
        # This lets one process at a time in. On a file system without flock, a process that
        # loses its lock to another notices at its next heartbeat.
        with contextlib.suppress(OSError):
          fcntl.flock(file, fcntl.LOCK_EX)
        same = os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        if same and self._read() == record:
          self._path.unlink()
    except FileNotFoundError:
      pass

  def _now(self) -> float:
    """Returns the time by the clock of the file system, which may be another machine's."""
    probe = files.unfinished_name(self._path)
    probe.touch()
    try:
      return probe.stat().st_mtime
    finally:
      probe.unlink(missing_ok=True)

  def _beat(self):
    """Sets the file's time at each heartbeat, and checks that the lock is still this run's."""
    while not self._stop.wait(self._beat_seconds):
      # A full disk or an absent file server may come back.
      with contextlib.suppress(OSError, UserError):
        record = self._read()
        if record is None and self._create():
          continue  # Someone had removed the file, and nobody had taken the lock.
        record = record or self._read()
        if record is not None and record.content != self._content:
          self._lost(f'{self._workdir} was taken over by {_name(record.holder)}, since this '
                     f'process had no heartbeat for too long; this process stops')
          return
        os.utime(self._path)


def _name(holder: dict[str, Any] | None) -> str:
  """Returns a description of the holder for people."""
  if holder is None:
    return f'a process that has not written its name into {LOCK}'
  return f'process {holder["process"]} on host {holder["host"]}'


def _began(process: int) -> int | None:
  """Returns when a process started, in clock ticks since boot; None if it ended or is hidden."""
  try:
    stat = Path(f'/proc/{process}/stat').read_text(encoding='ascii', errors='replace')
  except OSError:
    return None
  # The name, in brackets, may hold anything. After it come the state and, as the 20th field,
  # the start time.
  fields = stat.rpartition(')')[2].split()
  return None if fields[0] in 'ZX' else int(fields[19])


def _may_be_hidden(process: int) -> bool:
  """Returns whether another user's process has this number: /proc may hide it."""
  try:
    os.kill(process, 0)  # Only checks that the process exists.
  except PermissionError:
    return True
  except (ProcessLookupError, OverflowError):
    pass
  return False


def _end(message: str):
  """Ends the process before it can write anything else."""
  print(f'error: {message}', file=sys.stderr, flush=True)
  os._exit(1)
