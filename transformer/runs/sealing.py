"""Digests of a checkpoint's files, which reveal every later change to them.

Orbax and TensorStore miss most flipped bytes of an array, and changed digits of a history.
"""

import hashlib
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformer import files
from transformer.errors import UserError

DIGESTS = 'digests.json'


def seal(folder: Path, step: int):
  """Flushes a complete checkpoint to the disk, and records the size and digest of every file.

  The step is recorded too, so that a renamed folder is noticed.
  """
  files.flush_all(folder)
  paths = sorted(path for path in folder.rglob('*') if path.is_file())
  names = [path.relative_to(folder).as_posix() for path in paths]
  files.write_sealed(
    folder / DIGESTS, {'step': step, 'files': _describe(folder, names)}
  )


def find_damage(folder: Path, step: int) -> str | None:
  """Returns the first difference to a checkpoint as it was written, in words, or None.

  Compares every byte, and ignores files that other programs have added. A file that is there and
  cannot be read raises an error, since that says nothing about its content.
  """
  try:
    about = files.read_sealed(folder / DIGESTS, 'the digests of the checkpoint')
    found = _describe(folder, about['files'])
  except UserError as error:
    if isinstance(error.__cause__, PermissionError):
      raise
    return str(error)
  except FileNotFoundError as error:
    return f'{os.path.relpath(error.filename, folder)} is missing'
  if about['step'] != step:
    return f'it is the checkpoint of step {about["step"]}'
  for name, written in about['files'].items():
    if found[name] != written:
      return f'{name} should have {written}; it has {found[name]}'
  return None


def digest_of(folder: Path) -> str | None:
  """Returns the SHA-256 of a checkpoint's `digests.json`, which has those of its other files.

  It is None if the checkpoint is gone, as a run in training removes old ones.
  """
  path = folder / DIGESTS
  return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _describe(folder: Path, names: Collection[str]) -> dict:
  """Returns the size and the SHA-256 of files in a folder, by name."""

  def describe(name: str) -> dict:
    with (folder / name).open('rb') as file:
      digest = hashlib.file_digest(file, 'sha256').hexdigest()
      return {'bytes': file.tell(), 'sha256': digest}

  with ThreadPoolExecutor() as pool:
    return dict(zip(names, pool.map(describe, names), strict=True))
