"""Paths, atomic writes, and JSON with a digest that detects changes.

A file is written under a temporary name and renamed once it is on disk. So neither a kill nor a
loss of power leaves a partial file.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError, short_repr

StrPath = str | os.PathLike
# The last key of a sealed object: the digest of all bytes before the digest.
SEAL = 'sha256'
_AFTER_DIGEST = b'"\n}\n'


def as_path(name: StrPath) -> Path:
  """Returns a path with `~` expanded.

  Raises `UserError` if the name is not a usable path, or has a scheme, such as gs://, which would
  become a local folder of that name.
  """
  if scheme := re.match(r'[A-Za-z][\w+.-]*://', str(name)):
    raise UserError(
      f'{name} must be a local path; mounted disks are fine; it begins with {scheme[0]}'
    )
  try:
    path = Path(os.path.expanduser(name))  # An unknown user's `~NAME` is unchanged.
    path.exists()
  except (TypeError, OSError) as error:
    reason = getattr(error, 'strerror', 'it must be text, or a Path')
    raise UserError(f'{short_repr(name)} cannot be used as a path: {reason}') from error
  return path


def write(path: StrPath, content: bytes):
  """Writes a file atomically, and creates its folders; on failure, the old file is unchanged."""
  with _renamed_at_end(Path(path)) as unfinished, unfinished.open('wb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def new_folder(path: StrPath) -> Iterator[Path]:
  """Yields a temporary folder to fill; renames it to `path` once its content is on disk.

  `path` must be unused, or an empty folder. If the caller fails, nothing is left.
  """
  with _renamed_at_end(Path(path)) as unfinished:
    unfinished.mkdir()
    yield unfinished
    fsync_tree(unfinished)


@contextlib.contextmanager
def _renamed_at_end(path: Path) -> Iterator[Path]:
  """Yields a temporary path, and renames it to `path` if the caller succeeds."""
  unfinished = temporary_name(path)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
      yield unfinished
      os.replace(unfinished, path)
    finally:
      if unfinished.is_dir():
        shutil.rmtree(unfinished, ignore_errors=True)
      else:
        unfinished.unlink(missing_ok=True)
    fsync_folder(path.parent)
  except OSError as error:
    raise UserError(
      f'{path} cannot be written: {error.strerror or error}; free disk space or fix '
      'permissions, then rerun'
    ) from error


def temporary_name(path: Path) -> Path:
  """Returns a temporary name for a file, which no other process or thread uses."""
  # A file name may have up to 255 bytes, and a character up to four.
  return path.with_name(f'{path.name[:50]}.{uuid.uuid4().hex}.tmp')


def is_temporary(path: Path) -> bool:
  """Returns whether a path has a name from `temporary_name`."""
  return re.search(r'\.[0-9a-f]{32}\.tmp\Z', path.name) is not None


def unused_name(path: Path) -> Path:
  """Returns the path, or the first of PATH.2, PATH.3 and so on that does not exist."""
  unused = path
  index = 1
  while unused.exists():
    index += 1
    unused = path.with_name(f'{path.name}.{index}')
  return unused


def fsync_tree(folder: StrPath):
  """Flushes everything in a folder to disk, so that it survives a loss of power."""
  for parent, _, names in os.walk(folder):
    for name in names:
      with open(os.path.join(parent, name), 'rb') as file:
        os.fsync(file.fileno())
    fsync_folder(parent)


def fsync_folder(folder: StrPath):
  """Flushes the names in a folder to disk, if the file system supports it."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)


def json_bytes(value: Any) -> bytes:
  """Returns a value as indented JSON that ends in a line feed."""
  # A lone surrogate, from an argument that is not UTF-8, becomes a JSON escape sequence.
  text = json.dumps(value, indent=2, ensure_ascii=False)
  return text.encode('utf-8', 'backslashreplace') + b'\n'


def sha256_of(path: Path) -> str:
  """Returns the SHA-256 of a file, in hexadecimal."""
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def write_json(path: StrPath, value: Any):
  """Writes indented JSON atomically."""
  write(path, json_bytes(value))


def write_sealed(path: StrPath, value: Mapping):
  """Writes an object as indented JSON whose last key is a digest of everything before it."""
  write(path, _sealed(value))


def _sealed(value: Mapping) -> bytes:
  head = json_bytes({**value, SEAL: ''}).removesuffix(_AFTER_DIGEST)
  return head + hashlib.sha256(head).hexdigest().encode() + _AFTER_DIGEST


def read_sealed(path: StrPath, holds: str) -> dict:
  """Returns the object in a file from `write_sealed`, without its digest.

  Raises `UserError` if the file is missing, corrupt or edited. `holds` names its content, such as
  `the run's config`.
  """
  try:
    content = Path(path).read_bytes()
    value = json.loads(content)
    del value[SEAL]
    if content != _sealed(value):
      raise ValueError('it was edited or is damaged')
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    raise UserError(
      f'{path} should contain {holds}, but cannot be read: '
      f'{getattr(error, "strerror", None) or error}; restore it from a copy'
    ) from error
  return value
