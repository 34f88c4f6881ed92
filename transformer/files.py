"""Writes files and folders atomically, and JSON with a digest that reveals changes.

A file is written under a temporary name and renamed once it is on the disk. So neither a kill
nor a loss of power leaves half a file.
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

# The most bytes of a file's name, on most file systems.
LONGEST_NAME = 255
# The last key of a sealed object: the digest of all bytes before the digest itself.
SEAL = 'sha256'
_BEFORE_DIGEST, _AFTER_DIGEST = f'"{SEAL}": "'.encode(), b'"\n}\n'
_MAX_DEPTH = 20
_REMOVE_SECONDS, _RETRY_SECONDS = 5.0, 0.1
_DIGITS = 2 * hashlib.sha256().digest_size
_SCHEME = re.compile(r'[A-Za-z][\w+.-]*://')
_UNFINISHED = re.compile(r'.+\.(?P<machine>[^.]+)\.(?P<process>\d+)\.[0-9a-f]{32}\.tmp', re.DOTALL)


def check_local(name: str, path: str):
  """Refuses a path with a scheme, such as gs://, which would become a local folder of that name.

  Args:
    name: the flag or the setting that has the path.
    path: the path as the user gave it.

  Raises:
    UserError: the path has a scheme.
  """
  if scheme := _SCHEME.match(path):
    raise UserError(f'{name} must be a path on this machine, such as that of a mounted disk; got '
                    f'{path}, which begins with {scheme[0]}')


def write(path: str | os.PathLike, content: bytes):
  """Writes a file atomically: even a loss of power leaves either its old or its new content.

  Makes folders as needed, and removes unfinished versions of the file that killed processes of
  this machine left.

  Raises:
    UserError: the file cannot be written; it keeps its old content.
  """
  path = Path(path)
  with _temporary_name(path) as unfinished, unfinished.open('wb') as file:
    file.write(content)
    flush(file)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[Path]:
  """Yields a folder to fill, which gets its name once all its content is on the disk.

  If the caller fails, the folder is removed. Unfinished versions that killed processes of this
  machine left are removed too.

  Args:
    path: the folder's name; it does not exist yet, or is an empty folder.

  Raises:
    UserError: the folder cannot be written.
  """
  with _temporary_name(Path(path)) as unfinished:
    unfinished.mkdir()
    yield unfinished
    for parent, _, names in os.walk(unfinished):
      for name in names:
        with open(os.path.join(parent, name), 'rb') as file:
          os.fsync(file.fileno())
      flush_folder(parent)


@contextlib.contextmanager
def _temporary_name(path: Path) -> Iterator[Path]:
  """Yields a temporary name, and renames the file or folder to `path` if the caller succeeds."""
  unfinished = unfinished_name(path)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f'{_literal(_beginning(path))}.*.tmp'):
      if _is_abandoned(left.name):
        _remove(left)
    try:
      yield unfinished
      os.replace(unfinished, path)
    finally:
      _remove(unfinished)
    flush_folder(path.parent)
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error.strerror or error}; free disk space '
                    f'or allow writing there, then start again') from error


def _remove(path: Path):
  """Removes a file or a folder, if it exists.

  A folder is removed again if it comes back, since threads of the caller may still write into it.
  """
  deadline = time.monotonic() + _REMOVE_SECONDS
  while path.is_dir():
    try:
      shutil.rmtree(path)
    except OSError:
      if time.monotonic() > deadline:
        raise
    time.sleep(_RETRY_SECONDS)
  path.unlink(missing_ok=True)


def unfinished_name(path: Path) -> Path:
  """Returns a name for an unfinished file that no other process or thread uses."""
  return path.with_name(f'{_beginning(path)}.{_machine()}.{os.getpid()}.{uuid.uuid4().hex}.tmp')


def _beginning(path: Path) -> str:
  """Returns as much of a file's name as leaves room for the rest of an unfinished name."""
  name = os.fsencode(path.name)
  room = LONGEST_NAME - 64
  return path.name if len(name) <= room else name[:room].decode(errors='ignore')


def unused_name(path: Path) -> Path:
  """Returns the path, or the first of PATH.2, PATH.3 and so on that does not exist."""
  unused, number = path, 1
  while unused.exists():
    number += 1
    unused = path.with_name(f'{path.name}.{number}')
  return unused


def is_unfinished(path: Path) -> bool:
  """Returns whether a file has a name of `unfinished_name`."""
  return _UNFINISHED.fullmatch(path.name) is not None


def flush(file):
  """Makes a file's content survive a loss of power; call it before the file is renamed."""
  file.flush()
  os.fsync(file.fileno())


def flush_folder(folder: str | os.PathLike):
  """Makes the names in a folder survive a loss of power, if the file system supports it."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)


def write_json(path: str | os.PathLike, value: Any):
  """Writes indented JSON atomically."""
  write(path, as_json(value))


def as_json(value: Any) -> bytes:
  """Returns a value as indented JSON that ends in a line feed."""
  return _dump(value) + b'\n'


def write_sealed(path: str | os.PathLike, value: Mapping[str, Any]):
  """Writes an object as indented JSON whose last key is a digest of everything before it."""
  head = _dump({**value, SEAL: ''})[:-len(b'"\n}')]
  write(path, head + hashlib.sha256(head).hexdigest().encode() + _AFTER_DIGEST)


def read_sealed(path: str | os.PathLike, holds: str) -> dict[str, Any]:
  """Reads a file that `write_sealed` wrote, and checks it against its digest.

  Args:
    path: the file.
    holds: the content, for error messages such as "should hold the run's config".

  Returns:
    The object, without the digest.

  Raises:
    UserError: the file is missing, was changed, or was made to do harm.
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
    raise UserError(f'{wanted} and end in its own {SEAL}; it does not, so it is damaged, was '
                    f'edited, or belongs to a run that began before there were digests; restore '
                    f'it from a copy, or go on with the commit that the run began with')
  if seal != hashlib.sha256(head).hexdigest().encode() + _AFTER_DIGEST:
    raise UserError(f'{wanted} as it was written; its {SEAL} says that it is damaged or was '
                    f'edited; restore it from a copy')
  try:
    value = json.loads(content.decode('utf-8'), object_pairs_hook=_unique_keys)
    if _is_deeper(value, _MAX_DEPTH):  # Deeper values would exceed the recursion limit.
      raise ValueError(f'it is nested deeper than {_MAX_DEPTH} levels')
  except (ValueError, RecursionError) as error:
    raise UserError(f'{wanted} and cannot be understood: {error}; restore it from a '
                    f'copy') from error
  del value[SEAL]
  return value


def _dump(value: Any) -> bytes:
  # A lone surrogate, from an argument that is not UTF-8, becomes JSON's escape sequence.
  return json.dumps(value, indent=2, ensure_ascii=False).encode('utf-8', 'backslashreplace')


def _unique_keys(pairs) -> dict[str, Any]:
  value = dict(pairs)
  if len(value) < len(pairs):
    raise ValueError('a key occurs twice in it')
  return value


def _is_deeper(value: Any, depth: int) -> bool:
  """Returns whether a value is nested more than `depth` levels deep."""
  if not isinstance(value, (dict, list)):
    return False
  inner = value.values() if isinstance(value, dict) else value
  return not depth or any(_is_deeper(value, depth - 1) for value in inner)


def _literal(name: str) -> str:
  """Returns the pattern of `glob` that matches only `name`."""
  return re.sub(r'([*?[])', r'[\1]', name)


def _is_abandoned(name: str) -> bool:
  """Returns whether an unfinished file belongs to a dead process of this machine."""
  parts = _UNFINISHED.fullmatch(name)
  if not parts or parts['machine'] != _machine():
    return False
  try:
    os.kill(int(parts['process']), 0)  # Only checks that the process exists.
  except (ProcessLookupError, OverflowError):
    return True
  except PermissionError:
    pass
  return False


def machine_id() -> str | None:
  """Returns an id shared by the processes that see the same process numbers; None if unknown.

  The host's name would not do, since containers may share it.
  """
  try:
    boot = Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()
    return f'{boot} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return None


def _machine() -> str:
  """Returns a short name of the machine, or of the container, for names of files."""
  return hashlib.sha256((machine_id() or socket.gethostname()).encode()).hexdigest()[:12]
