"""Digests of a checkpoint's files, by which every later change to any of them is found."""

import errno
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformer import files
from transformer.errors import UserError

DIGESTS = 'digests.json'
# What keeps a file from being read and says nothing of what is in it.
_NO_DAMAGE = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def seal(folder: str | os.PathLike, step: int):
  """Writes down what a complete checkpoint consists of, once all of it is on the disk.

  Args:
    folder: the checkpoint's; nothing in it changes any more.
    step: its step, so that it is not taken for another when the folder is renamed.
  """
  folder = Path(folder)
  found, folders = {}, [folder]
  for path in _walk(folder):
    if path.is_dir():
      folders.append(path)
    else:
      found[path.relative_to(folder).as_posix()] = path
  with ThreadPoolExecutor() as pool:
    about = dict(zip(found, pool.map(lambda path: _describe(path, last=True), found.values()),
                     strict=True))
  for each in reversed(folders):
    files.flush_folder(each)
  files.write_sealed(folder / DIGESTS, {'step': step, 'files': about})


def damage(folder: str | os.PathLike, step: int) -> str | None:
  """What about a checkpoint is not as it was sealed, in words; None if it is whole.

  Every byte of it is read, so that nothing of it is used before.

  Raises:
    OSError: it may not be read, or cannot be now, which is no damage.
  """
  folder = Path(folder)
  if not (folder / DIGESTS).exists():
    return (f'{DIGESTS} is missing, without which nothing tells whether it is whole (runs begun '
            f'before there were any go on with the commit that they began with)')
  try:
    about = files.read_sealed(folder / DIGESTS, 'the digests of the checkpoint')
    wanted = about['files']
    if about['step'] != step:
      return f'it is the checkpoint of step {about["step"]}'
    found = {path.relative_to(folder).as_posix(): path for path in _walk(folder)
             if path.is_symlink() or not path.is_dir()}
    del found[DIGESTS]
    if differing := sorted(wanted.keys() ^ found.keys()):
      name = differing[0]
      return f'{_shown(name)} {"is missing" if name in wanted else "does not belong to it"}'
    if unusual := [name for name, path in found.items()
                   if path.is_symlink() or not path.is_file()]:
      return f'{_shown(unusual[0])} is not a file'
    with ThreadPoolExecutor() as pool:
      for name, each in zip(found, pool.map(_describe, found.values()), strict=True):
        if each != wanted[name]:
          return f'{name} should have {wanted[name]}; it has {each}'
  except UserError as error:
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_DAMAGE:
      raise error.__cause__ from None
    return str(error)
  except OSError as error:
    if error.errno in _NO_DAMAGE:
      raise
    return f'{error.filename} cannot be read ({error.strerror})'
  except (AttributeError, KeyError, TypeError) as error:
    return f'{DIGESTS} cannot be understood ({error!r})'
  return None


def _walk(folder: Path) -> Iterator[Path]:
  """All that lies in a folder and in those in it, without following links."""
  for parent, folders, names in os.walk(folder, onerror=_refuse):
    for name in (*folders, *names):
      yield Path(parent, name)


def _shown(name: str) -> str:
  """A name as it is, or, where that would not stay on one line, as Python writes it."""
  return name if name.isprintable() else ascii(name)


def _refuse(error: OSError):
  raise error


def _describe(path: Path, last: bool = False) -> dict[str, int | str]:
  """Size and SHA-256 of a file, read block by block; `last` makes it outlast a loss of power."""
  with path.open('rb') as file:
    digest = hashlib.file_digest(file, 'sha256').hexdigest()
    if last:
      os.fsync(file.fileno())
    return {'bytes': file.tell(), 'sha256': digest}
