"""Digests of a checkpoint's files, which detect every later change.

Orbax and TensorStore miss most flipped bytes in arrays, and changed digits in the history.
"""

import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformer import files
from transformer.errors import UserError

DIGESTS = 'digests.json'


def seal(folder: Path, step: int):
  """Flushes a complete checkpoint to disk, and records the size and digest of every file.

  Also records the step, so that a renamed folder is detected.
  """
  files.fsync_tree(folder)
  paths = sorted(path for path in folder.rglob('*') if path.is_file())
  names = [path.relative_to(folder).as_posix() for path in paths]
  files.write_sealed(
    folder / DIGESTS, {'step': step, 'files': _describe(folder, names)}
  )


def find_damage(folder: Path, step: int) -> str | None:
  """Returns a description of the first difference from the sealed checkpoint; None if intact.

  Compares every byte. Ignores files that other programs have added. Raises an error if a file
  exists but cannot be read, since its content may be intact.
  """
  try:
    metadata = files.read_sealed(folder / DIGESTS, 'the digests of the checkpoint')
    actual = _describe(folder, metadata['files'])
  except UserError as error:
    if isinstance(error.__cause__, PermissionError):
      raise
    return str(error)
  except FileNotFoundError as error:
    return f'{os.path.relpath(error.filename, folder)} is missing'
  if metadata['step'] != step:
    return f'it is the checkpoint of step {metadata["step"]}'
  for name, expected in metadata['files'].items():
    if actual[name] != expected:
      return f'{name} should have {expected}; it has {actual[name]}'
  return None


def digest_of(folder: Path) -> str | None:
  """Returns the SHA-256 of a checkpoint's `digests.json`, which covers all other files.

  Returns None if the checkpoint does not exist: a run deletes old checkpoints while it
  trains.
  """
  path = folder / DIGESTS
  return files.sha256_of(path) if path.exists() else None


def _describe(folder: Path, names: Collection[str]) -> dict:
  """Returns the size and SHA-256 of the named files in a folder, by name."""

  def describe(name: str) -> dict:
    path = folder / name
    return {'bytes': path.stat().st_size, 'sha256': files.sha256_of(path)}

  with ThreadPoolExecutor() as pool:
    return dict(zip(names, pool.map(describe, names), strict=True))
