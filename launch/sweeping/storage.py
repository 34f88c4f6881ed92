"""The storages of a sweep: Optuna's journal in a folder, or a database by its URL.

Both are Optuna's own. Two things are added:

- The journal's lock also removes an incomplete line, such as a full disk leaves. Optuna would write
  the next line behind it, and could then read neither.
- A heartbeat that the database refuses is a warning. Optuna's thread would end with it, and another
  worker would then take the trial.

A journal has no heartbeats. So in a folder, a worker claims its trial by a lock.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy
from absl import logging
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from launch.sweeping.records import run_again
from transformer.errors import UserError, type_and_message
from transformer.runs.lock import run_lock

JOURNAL = 'journal.log'
CLAIMS = 'claims'
DATABASE_ERRORS = (sqlalchemy.exc.SQLAlchemyError, StorageInternalError)
HEARTBEAT_SECONDS = 15
STALE_SECONDS = 120
# Writing a line is quick, so a process that holds the lock for longer must have been killed.
KILLED_SECONDS = 30


class JournalLock(JournalFileOpenLock):
  """Optuna's lock of a journal, which also removes an incomplete line.

  Optuna's other lock is a symbolic link: if its path is relative, a dead process keeps it for good.
  """

  def __init__(self, path: Path):
    super().__init__(str(path), KILLED_SECONDS)
    self._path = path

  def acquire(self) -> bool:
    """Waits for the lock, and mends the journal."""
    taken = super().acquire()
    with self._path.open('rb+') as file:
      size = file.seek(0, os.SEEK_END)
      file.seek(max(0, size - 1))
      if file.read() not in (b'', b'\n'):
        file.seek(0)
        file.truncate(file.read().rfind(b'\n') + 1)
    return taken


class Database(RDBStorage):
  """Optuna's database, with heartbeats that go on after one that fails."""

  def record_heartbeat(self, trial_id: int):
    """Records that a trial is running; logs a warning if the database does not work."""
    try:
      super().record_heartbeat(trial_id)
    except DATABASE_ERRORS as error:
      logging.warning(
        'the database did not take a heartbeat, and is tried again in %d seconds: %s',
        self.get_heartbeat_interval(),
        type_and_message(error),
      )


def open_journal(path: Path) -> JournalStorage:
  """Opens a journal, and creates it if there is none."""
  try:
    return JournalStorage(JournalFileBackend(str(path), JournalLock(path)))
  except (ValueError, KeyError, TypeError, AssertionError) as error:
    raise UserError(
      f"{path} should hold the sweep's trials, and is damaged: {error}; restore it "
      f'from a copy, or choose another --workdir'
    ) from error


@contextmanager
def turn(claims: Path) -> Iterator[None]:
  """Lets one worker at a time choose a trial in a folder."""
  lock = JournalFileOpenLock(str(claims / 'turn'))
  lock.acquire()
  try:
    yield
  finally:
    lock.release()


def claim(claims: Path, number: int) -> AbstractContextManager:
  """Returns the lock that a worker holds for its trial."""
  folder = claims / str(number)
  # Created here: a lock removes a folder that it has created, and other workers may need it.
  folder.mkdir(parents=True, exist_ok=True)
  return run_lock(folder)


def open_database(url: str) -> Database:
  """Opens a database, and creates Optuna's tables if there are none."""
  with database_errors(url):
    try:
      return Database(
        url,
        {'pool_pre_ping': True},
        heartbeat_interval=HEARTBEAT_SECONDS,
        grace_period=STALE_SECONDS,
        heartbeat_stale_trial_callback=run_again,
      )
    except ImportError as error:
      missing = getattr(error.__cause__, 'name', None) or 'a driver'
      raise UserError(
        f'--storage={without_password(url)} needs {missing}, which is not installed; '
        f'install it, or use another driver, such as that of postgresql+psycopg://: '
        f'pip install "psycopg[binary]"'
      ) from error
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
      raise UserError(
        f'--storage must be the URL of a database, such as '
        f'postgresql+psycopg://USER@HOST/NAME; got {without_password(url)}: '
        f'{type_and_message(error)}'
      ) from error


@contextmanager
def database_errors(url: str | None) -> Iterator[None]:
  """Turns the errors of a database into one line."""
  try:
    yield
  except sqlalchemy.exc.ArgumentError:
    raise  # The URL is at fault, and not the database.
  except DATABASE_ERRORS as error:
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    reason = type_and_message(getattr(cause, 'orig', None) or error)
    raise UserError(
      f'the database {without_password(url or "")} cannot be used: {reason}; once '
      f'the database works, the same command goes on'
    ) from error


def without_password(url: str) -> str:
  """Returns a URL with stars in place of its password."""
  try:
    return sqlalchemy.make_url(url).render_as_string(hide_password=True)
  except (sqlalchemy.exc.ArgumentError, ValueError):
    return url
