"""One run at a time in a directory."""

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


class _Found(NamedTuple):
  """A lock as it lies there: its bytes, what they say if that is clear, and its last beat."""

  content: bytes
  holder: dict[str, Any] | None
  beat: float


class RunLock:
  """The right to write to a run's directory, held while it is entered.

  It is a file that says who holds it. On the same machine a holder is dead when its
  process is gone; the time at which that started tells it from another one that has
  got its number. Of a machine elsewhere nothing can be seen but the file's time of
  change, which a living holder sets every `BEAT_SECONDS`: it is dead when that has
  not happened for `EXPIRES_SECONDS`, by the clock of the file system. Whoever reads
  a run needs no lock.
  """

  def __init__(self, workdir: str | os.PathLike, *, beat_seconds: float = BEAT_SECONDS,
               expires_seconds: float = EXPIRES_SECONDS,
               lost: Callable[[str], None] | None = None):
    """Names the directory; nothing is written before the lock is entered.

    Args:
      workdir: the run's directory; made on entering, with what is above it.
      beat_seconds: time between two signs of life.
      expires_seconds: time without one after which a holder elsewhere is dead.
      lost: what to do when another run has taken the lock, told so in one line; None
        ends the process at once, with status 1.
    """
    self._workdir = Path(workdir).absolute()
    self._path = self._workdir / LOCK
    self._beat_seconds = beat_seconds
    self._expires_seconds = expires_seconds
    self._lost = lost or _end
    self._stop = threading.Event()
    # The identifier tells this lock from one that the same process took before.
    self._content = json.dumps({
        'host': socket.gethostname(), 'process': os.getpid(), 'machine': _machine(),
        'began': _began(os.getpid()), 'taken': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
        'id': uuid.uuid4().hex}).encode()

  def __enter__(self) -> 'RunLock':
    """Takes the lock, that of a dead holder too.

    Raises:
      UserError: another run is in the directory; names its host and process.
    """
    self._made = [each for each in (self._workdir, *self._workdir.parents) if not each.exists()]
    self._workdir.mkdir(parents=True, exist_ok=True)
    while not self._create():
      found = self._read()
      if found is not None:
        self._refuse_the_living(found)
        self._remove(found)
    self._thread = threading.Thread(target=self._beat, name='lock', daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_):
    """Gives the lock back, and removes the directories that it made if nothing is in them."""
    self._stop.set()
    self._thread.join()
    found = self._read()
    if found is not None and found.content == self._content:
      self._path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
      for folder in self._made:
        folder.rmdir()

  def _create(self) -> bool:
    """Whether the lock could be made, since there was none."""
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

  def _read(self) -> _Found | None:
    """The lock that is there, if one is."""
    try:
      # Opening it makes a network file system ask its server.
      with self._path.open('rb') as file:
        content, beat = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
      return None
    try:
      holder = json.loads(content)
      holder = holder if {'host', 'process', 'machine', 'began'} <= holder.keys() else None
    except (ValueError, AttributeError):
      holder = None  # Its process was killed while it wrote it, or is about to write it.
    return _Found(content, holder, beat)

  def _refuse_the_living(self, found: _Found):
    """Returns when the holder is dead, or has gone."""
    holder = found.holder
    if holder is not None and holder['machine'] is not None and holder['machine'] == _machine():
      if _began(holder['process']) == holder['began']:
        raise self._taken(found)
      logging.info('taking over the run from process %s, which is gone', holder['process'])
      return
    age = self._now() - found.beat
    # A beat that is to come is a clock that was set back; it gets the whole time.
    deadline = time.monotonic() + self._expires_seconds - max(0.0, age)
    told = False
    while time.monotonic() < deadline:
      if not told:
        logging.info('%s is held by %s, %.0f seconds after its last sign of life; waiting for '
                     'another, up to %.0f seconds', self._path, _name(holder), max(0.0, age),
                     deadline - time.monotonic())
        told = True
      time.sleep(min(1.0, self._beat_seconds / 2))
      now = self._read()
      if now is None:
        return
      if now != found:
        raise self._taken(now)
    logging.info('taking over the run from %s, which has shown no sign of life for %.0f seconds',
                 _name(holder), self._expires_seconds)

  def _taken(self, found: _Found) -> UserError:
    return UserError(f'{self._workdir} is in use by {_name(found.holder)}; wait for that run, '
                     f'stop it, or choose another --workdir')

  def _remove(self, found: _Found):
    """Removes a dead holder's lock, unless another process was quicker and took it over."""
    try:
      with self._path.open('rb') as file:
        # One at a time, where the file system can. Where it cannot, whoever loses a lock
        # that it took notices at its next beat.
        with contextlib.suppress(OSError):
          fcntl.flock(file, fcntl.LOCK_EX)
        same = os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        if same and self._read() == found:
          self._path.unlink()
    except FileNotFoundError:
      pass

  def _now(self) -> float:
    """The time by the clock of the file system, which may be another machine's."""
    probe = files.unfinished_name(self._path)
    probe.touch()
    try:
      return probe.stat().st_mtime
    finally:
      probe.unlink(missing_ok=True)

  def _beat(self):
    """Gives a sign of life from time to time, and sees whether the lock is still this run's."""
    while not self._stop.wait(self._beat_seconds):
      # A full disk, or a server that is away for a while.
      with contextlib.suppress(OSError, UserError):
        found = self._read()
        if found is None and self._create():
          continue  # Someone has removed it, and no one has taken it.
        found = found or self._read()
        if found is not None and found.content != self._content:
          self._lost(f'{self._workdir} was taken over by {_name(found.holder)}, since this '
                     f'process gave no sign of life; it stops, and leaves the run to that one')
          return
        os.utime(self._path)


def _name(holder: dict[str, Any] | None) -> str:
  """Who holds a lock, for people."""
  if holder is None:
    return f'a process that did not get to write its name into {LOCK}'
  return f'process {holder["process"]} on host {holder["host"]}'


def _machine() -> str | None:
  """What is the same for processes that can see each other by number; None if that is not known.

  Not the host's name, which containers may share.
  """
  try:
    boot = Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()
    return f'{boot} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return None


def _began(process: int) -> int | None:
  """When a process started, in the machine's own ticks; None if there is none that runs."""
  try:
    stat = Path(f'/proc/{process}/stat').read_text(encoding='ascii', errors='replace')
  except OSError:
    return None
  # The name, in brackets, may hold anything; the state follows, and the start is the 20th.
  fields = stat.rpartition(')')[2].split()
  return None if fields[0] in 'ZX' else int(fields[19])


def _end(message: str):
  """Ends the process before it writes anything else."""
  print(f'error: {message}', file=sys.stderr, flush=True)
  os._exit(1)
