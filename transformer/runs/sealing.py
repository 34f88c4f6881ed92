"""Digests of a checkpoint's files, which reveal every later change to them."""

import errno
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from absl import logging

from transformer import files
from transformer.errors import UserError

DIGESTS = 'digests.json'
# Errors of reading a file that say nothing about its content.
_NO_DAMAGE = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def seal(folder: str | os.PathLike, step: int):
  """Flushes a complete checkpoint to the disk, and records the size and digest of every file.

  The step is recorded too, so that a renamed folder is noticed.
  """
  folder = Path(folder)
  inside = sorted(folder.rglob('*'))
  paths = [path for path in inside if not path.is_dir()]
  with ThreadPoolExecutor() as pool:
    about = list(pool.map(lambda path: _describe(path, flush=True), paths))
  for inner in (*(path for path in reversed(inside) if path.is_dir()), folder):
    files.flush_folder(inner)
  names = [path.relative_to(folder).as_posix() for path in paths]
  files.write_sealed(
    folder / DIGESTS, {'step': step, 'files': dict(zip(names, about, strict=True))}
  )


def find_damage(folder: Path, step: int) -> str | None:
  """Returns the first difference to a checkpoint as it was written, in words, or None.

  Compares every byte, and ignores other files. Raises `OSError` if a file cannot be read for a
  reason other than damage, such as missing permission.
  """
  try:
    about = files.read_sealed(folder / DIGESTS, 'the digests of the checkpoint')
    if about['step'] != step:
      return f'it is the checkpoint of step {about["step"]}'
    # A file browser or a file system may have added files, such as .DS_Store; nothing reads them.
    wanted = about['files']
    with ThreadPoolExecutor() as pool:
      contents = pool.map(_describe, [folder / name for name in wanted])
      for (name, written), content in zip(wanted.items(), contents, strict=True):
        if content != written:
          return f'{name} should have {written}; it has {content}'
  except (OSError, UserError) as error:
    reason = error.__cause__ if isinstance(error, UserError) else error
    if isinstance(reason, OSError) and reason.errno in _NO_DAMAGE:
      raise reason from None
    if isinstance(error, UserError):
      return str(error)
    name = os.path.relpath(error.filename, folder)
    missing = isinstance(error, FileNotFoundError)
    return f'{name} is missing' if missing else f'{name} cannot be read ({error.strerror})'
  return None


def digest_of(folder: Path) -> str | None:
  """Returns the SHA-256 of a checkpoint's `digests.json`, which has those of its other files.

  It is None if the checkpoint is gone, as a run in training removes old ones.
  """
  path = folder / DIGESTS
  return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def newest_whole(directory: Path, steps: Sequence[int], move: bool) -> int | None:
  """Returns the last undamaged step; `move` renames damaged checkpoints after it, and warns.

  `steps` are all folders `STEP/` of the directory, ascending; `UserError` if all are damaged.
  """
  damaged = {}
  for step in reversed(steps):
    damage = find_damage(directory / str(step), step)
    if damage is None:
      for folder, reason in damaged.items() if move else ():
        aside = files.unused_name(folder.with_name(f'{folder.name}.damaged'))
        os.rename(folder, aside)
        files.flush_folder(directory)
        logging.warning(
          '%s is damaged: %s; it is moved to %s, which may be removed, and the run '
          'goes on from step %d',
          folder,
          reason,
          aside.name,
          step,
        )
      return step
    damaged[directory / str(step)] = damage
  if damaged:
    reasons = '; '.join(f'{folder.name}: {damage}' for folder, damage in damaged.items())
    raise UserError(
      f'no checkpoint in {directory} is whole: {reasons}; restore one from a copy, '
      f'or train anew in another --workdir'
    )
  return None


def _describe(path: Path, flush: bool = False) -> dict[str, int | str]:
  """Returns the size and SHA-256 of a file; `flush` makes the file survive a loss of power."""
  with path.open('rb') as file:
    digest = hashlib.file_digest(file, 'sha256').hexdigest()
    if flush:
      os.fsync(file.fileno())
    return {'bytes': file.tell(), 'sha256': digest}
