"""The storages of a sweep: Optuna's journal in a folder, or a database by its URL.

Both are Optuna's storages, with two additions:

- The journal's lock also removes an incomplete line, such as one left by a full disk. Otherwise
  Optuna would append the next line to it, and could read neither.
- If the database rejects a heartbeat, a warning is logged. Otherwise Optuna's heartbeat thread
  would stop, and another worker would take the trial.

A journal has no heartbeats. So in a folder, a worker claims its trial with a lock.
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

from launch.sweeping.records import requeue
from transformer.errors import UserError, type_and_message
from transformer.runs.lock import run_lock

JOURNAL = 'journal.log'
# The study's name in a folder. Optuna's Hyperband also assigns trials to brackets by this name.
_STUDY = 'sweep'
CLAIMS = 'claims'
DATABASE_ERRORS = (sqlalchemy.exc.SQLAlchemyError, StorageInternalError)
HEARTBEAT_SECONDS = 15
STALE_SECONDS = 120
# Writing a line is quick: a process that holds the lock for longer must have been killed.
KILLED_SECONDS = 30


class JournalLock(JournalFileOpenLock):
  """Optuna's lock of a journal, which also removes an incomplete line.

  Optuna's other lock is a symbolic link. If its path is relative, a dead process never releases it.
  """

  def __init__(self, path: Path):
    super().__init__(str(path), KILLED_SECONDS)
    self._path = path

  def acquire(self) -> bool:
    """Acquires the lock, and repairs the journal."""
    acquired = super().acquire()
    with self._path.open('rb+') as file:
      size = file.seek(0, os.SEEK_END)
      file.seek(max(0, size - 1))
      if file.read() not in (b'', b'\n'):
        file.seek(0)
        file.truncate(file.read().rfind(b'\n') + 1)
    return acquired


class Database(RDBStorage):
  """Optuna's database, whose heartbeats continue after a failed heartbeat."""

  def record_heartbeat(self, trial_id: int):
    """Records that a trial is running; logs a warning if the database fails."""
    try:
      super().record_heartbeat(trial_id)
    except DATABASE_ERRORS as error:
      logging.warning(
        'the database did not accept a heartbeat; retrying in %d seconds: %s',
        self.get_heartbeat_interval(),
        type_and_message(error),
      )


def study_name(folder: Path, url: str | None) -> str:
  """Returns the name of the study of a sweep in a folder, or in the database `url`."""
  return folder.resolve().name if url else _STUDY


def open_trials(
  folder: Path, url: str | None, creates: bool = False
) -> JournalStorage | Database:
  """Opens the storage of a sweep.

  If its journal or SQLite file does not exist, creates it if `creates`, else raises `KeyError`.
  """
  path = _sqlite_file(url) if url else folder / JOURNAL
  if path and not creates and not path.exists():
    raise KeyError(path)
  if url:
    return open_database(url)
  try:
    return JournalStorage(JournalFileBackend(str(path), JournalLock(path)))
  except (ValueError, KeyError, TypeError, AssertionError) as error:
    raise UserError(
      f"{path}, which stores the sweep's trials, is damaged: {error}; restore it from a copy, "
      'or choose a different --workdir'
    ) from error


@contextmanager
def choice_lock(claims: Path) -> Iterator[None]:
  """Lets only one worker at a time choose a trial in a folder."""
  lock = JournalFileOpenLock(str(claims / 'turn'))
  lock.acquire()
  try:
    yield
  finally:
    lock.release()


def claim(claims: Path, number: int) -> AbstractContextManager:
  """Returns the lock that a worker holds for its trial."""
  folder = claims / str(number)
  # Created here: a lock deletes a folder that it has created, and other workers may need it.
  folder.mkdir(parents=True, exist_ok=True)
  return run_lock(folder)


def open_database(url: str) -> Database:
  """Opens a database; creates Optuna's tables if they do not exist."""
  return Database(
    url,
    {'pool_pre_ping': True},
    heartbeat_interval=HEARTBEAT_SECONDS,
    grace_period=STALE_SECONDS,
    heartbeat_stale_trial_callback=requeue,
  )


def check_url(url: str):
  """Raises `UserError` if workers cannot share the database `url`; does not connect to it."""
  shown = without_password(url)
  try:
    sqlalchemy.create_engine(url)
  except ImportError as error:
    missing = error.name or 'a driver'
    raise UserError(
      f'--storage={shown} needs {missing}, which is not installed; install it, or use a '
      'different driver, such as psycopg (postgresql+psycopg://): pip install "psycopg[binary]"'
    ) from error
  except (sqlalchemy.exc.ArgumentError, ValueError) as error:
    raise UserError(
      f'--storage must be the URL of a database, such as postgresql+psycopg://USER@HOST/NAME or '
      f'sqlite:////DIR/FILE; got {shown}: {type_and_message(error)}'
    ) from error
  if _sqlite_file(url) in (Path(), Path(':memory:')):
    raise UserError(
      f'--storage={shown} is in the memory of one process, and workers could not share it; name '
      'a file, as in sqlite:////DIR/FILE'
    )


def _sqlite_file(url: str):
  """Returns the file of a SQLite database; None for another database."""
  parsed = sqlalchemy.make_url(url)
  # With `uri`, the name is not that of a file.
  if 'uri' in parsed.query or parsed.get_backend_name() != 'sqlite':
    return None
  return Path(parsed.database or '')


@contextmanager
def database_errors(url: str | None) -> Iterator[None]:
  """Raises `UserError` with one line for an error of the database."""
  try:
    yield
  except DATABASE_ERRORS as error:
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    reason = type_and_message(getattr(cause, 'orig', None) or error)
    raise UserError(
      f'the database {without_password(url or "")} cannot be used: {reason}; once the database '
      'works, rerun the command to resume'
    ) from error


def without_password(url: str) -> str:
  """Returns a URL with its password masked."""
  try:
    return sqlalchemy.make_url(url).render_as_string(hide_password=True)
  except (sqlalchemy.exc.ArgumentError, ValueError):
    return url
