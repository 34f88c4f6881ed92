"""Files that are whole or as they were, and JSON that tells when it was changed.

A file is written under another name and renamed once it is on the disk, so that
neither a kill nor a loss of power leaves half of one.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError

# The last key of a sealed object: the digest of all that stands before the digest itself.
SEAL = 'sha256'
_BEFORE_DIGEST, _AFTER_DIGEST = f'"{SEAL}": "'.encode(), b'"\n}\n'
_DEEPEST = 20
_LEFT_SECONDS, _LOOK_SECONDS = 5.0, 0.1
_DIGITS = 2 * hashlib.sha256().digest_size
_UNFINISHED = re.compile(r'.+\.(?P<host>[^.]+)\.(?P<process>\d+)\.[0-9a-f]{32}\.tmp', re.DOTALL)


def write(path: str | os.PathLike, content: bytes):
  """Writes a file so that it is whole or as it was, also after a loss of power.

  Folders are made as needed. What a killed process of this machine left of the
  same file is removed.

  Raises:
    UserError: it cannot be written; it is as it was.
  """
  path = Path(path)
  with _named_when_whole(path) as unfinished, unfinished.open('wb') as file:
    file.write(content)
    flush(file)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[Path]:
  """Yields a folder to fill, which gets its name once all that is in it is on the disk.

  If filling it fails, nothing of it stays. What a killed process of this machine
  left of the same folder is removed.

  Args:
    path: the folder's name; nothing has it yet, or an empty folder.

  Raises:
    UserError: it cannot be written.
  """
  with _named_when_whole(Path(path)) as unfinished:
    unfinished.mkdir()
    yield unfinished
    for parent, _, names in os.walk(unfinished):
      for name in names:
        with open(os.path.join(parent, name), 'rb') as file:
          os.fsync(file.fileno())
      flush_folder(parent)


@contextlib.contextmanager
def _named_when_whole(path: Path) -> Iterator[Path]:
  """Yields another name, whose file or folder gets this one if nothing goes wrong."""
  unfinished = unfinished_name(path)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f'{_literal(path.name)}.*.tmp'):
      if _is_of_the_dead(left.name):
        _remove(left)
    try:
      yield unfinished
      os.replace(unfinished, path)
    finally:
      _remove(unfinished)
    flush_folder(path.parent)
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error.strerror or error}; make room, or give '
                    f'leave to write there, then start again') from error


def _remove(path: Path):
  """Removes a file, or a folder with all that is in it, if it is there.

  A folder is removed until it stays away, since what has failed to fill it may have threads
  that still do.
  """
  deadline = time.monotonic() + _LEFT_SECONDS
  while path.is_dir():
    try:
      shutil.rmtree(path)
    except OSError:
      if time.monotonic() > deadline:
        raise
    time.sleep(_LOOK_SECONDS)
  path.unlink(missing_ok=True)


def unfinished_name(path: Path) -> Path:
  """A name beside a file that no other process, or thread, takes for what is not finished."""
  return path.with_name(f'{path.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex}.tmp')


def is_unfinished(path: Path) -> bool:
  """Whether a file's name is one that `write` gives to what it has not finished."""
  return _UNFINISHED.fullmatch(path.name) is not None


def flush(file):
  """Makes a file last through a loss of power before its name, or its folder's, counts."""
  file.flush()
  os.fsync(file.fileno())


def flush_folder(folder: str | os.PathLike):
  """Makes the names in a folder last through a loss of power, where that can be asked for."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)


def write_json(path: str | os.PathLike, value: Any):
  """Writes indented JSON by `write`."""
  write(path, _dump(value) + b'\n')


def write_sealed(path: str | os.PathLike, value: Mapping[str, Any]):
  """Writes an object as indented JSON whose last key is a digest of all before it."""
  head = _dump({**value, SEAL: ''})[:-len(b'"\n}')]
  write(path, head + hashlib.sha256(head).hexdigest().encode() + _AFTER_DIGEST)


def read_sealed(path: str | os.PathLike, holds: str) -> dict[str, Any]:
  """Reads what `write_sealed` wrote, once every byte has been seen to be as it was.

  Args:
    path: the file.
    holds: what an error says that it should hold.

  Returns:
    The object, without the digest.

  Raises:
    UserError: it is missing, or not as it was written, or was written to do harm.
  """
  wanted = f'{path} should hold {holds}'
  try:
    content = Path(path).read_bytes()
  except OSError as error:
    raise UserError(f'{wanted} and cannot be read: {error.strerror}; restore it from a '
                    f'copy') from error
  tail = _DIGITS + len(_AFTER_DIGEST)
  head, seal = content[:-tail], content[-tail:]
  if not head.endswith(_BEFORE_DIGEST):
    raise UserError(f'{wanted} and end in its own {SEAL}; it does not, so it is damaged, or was '
                    f'edited, or is of a run begun before there were any; restore it from a copy, '
                    f'or go on with the commit that the run began with')
  if seal != hashlib.sha256(head).hexdigest().encode() + _AFTER_DIGEST:
    raise UserError(f'{wanted} as it was written; its {SEAL} says that it is damaged or was '
                    f'edited; restore it from a copy')
  try:
    value = json.loads(content.decode('utf-8'), object_pairs_hook=_without_repeats)
    if _nests(value, _DEEPEST):  # So deep that to show it, or to look through it, would fail.
      raise ValueError(f'it nests deeper than {_DEEPEST} levels')
  except (ValueError, RecursionError) as error:
    raise UserError(f'{wanted} and cannot be understood: {error}; restore it from a '
                    f'copy') from error
  del value[SEAL]
  return value


def _dump(value: Any) -> bytes:
  # A lone surrogate, as an argument that is not UTF-8 has, becomes JSON's own escape of it.
  return json.dumps(value, indent=2, ensure_ascii=False).encode('utf-8', 'backslashreplace')


def _without_repeats(pairs) -> dict[str, Any]:
  value = dict(pairs)
  if len(value) < len(pairs):
    raise ValueError('a key stands in it twice')
  return value


def _nests(value: Any, deepest: int) -> bool:
  """Whether values lie in others more than `deepest` deep."""
  if not isinstance(value, (dict, list)):
    return False
  inner = value.values() if isinstance(value, dict) else value
  return not deepest or any(_nests(each, deepest - 1) for each in inner)


def _literal(name: str) -> str:
  """A pattern of `glob` that only `name` matches."""
  return re.sub(r'([*?[])', r'[\1]', name)


def _is_of_the_dead(name: str) -> bool:
  """Whether an unfinished file is of a process of this machine that is no more."""
  parts = _UNFINISHED.fullmatch(name)
  if not parts or parts['host'] != _host():
    return False
  try:
    os.kill(int(parts['process']), 0)  # Sends nothing; only asks whether it could.
  except (ProcessLookupError, OverflowError):
    return True
  except PermissionError:
    return False
  return False


def _host() -> str:
  return socket.gethostname().replace('.', '-')
