"""Checks the files and folders that a command will write, before its work starts."""

import os
from collections.abc import Iterable
from pathlib import Path

from transformer import files
from transformer.errors import UserError

_PACKED = ('.gz', '.zst', '.xz', '.bz2', '.zip')


def check_file(flag: str, path: Path):
  """Raises `UserError` if `write` could not write a file; the file need not exist."""
  if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
    raise UserError(
      f'--{flag} must name a file to write to; {path} is a directory, or may not be written to'
    )
  if path.suffix.lower() in _PACKED:
    raise UserError(
      f'--{flag} is written uncompressed; name a file that does not end in {path.suffix}'
    )
  if not _is_stream(path):
    check_folder(flag, Path(os.path.realpath(path)).parent)


def write(path: Path, content: bytes):
  """Writes the file of a flag: atomically, unless it is a device or a pipe.

  If the path is a symbolic link, writes its target.
  """
  if not _is_stream(path):
    files.write(os.path.realpath(path), content)
    return
  try:
    with path.open('ab') as stream:
      stream.write(content)
  except OSError as error:
    raise UserError(
      f'{path} cannot be written: {error.strerror}; pass a different file'
    ) from error


def _is_stream(path: Path) -> bool:
  """Returns whether a path is a device or a pipe, such as /dev/null or `>(command)`."""
  # /dev/stdout may be a regular file, to which this process continues to write.
  return path.exists() and (str(path).startswith('/dev/') or not path.is_file())


def check_not_input(flag: str, path: Path, inputs: Iterable[files.StrPath]):
  """Raises `UserError` if an output would overwrite an input, under any name."""
  for name in inputs:
    input_path = files.as_path(name)
    if path.is_file() and input_path.exists() and path.samefile(input_path):
      raise UserError(
        f'--{flag}={path} would overwrite the input {name}; pass a different file'
      )


def check_folder(flag: str, folder: Path):
  """Raises `UserError` if a folder could not be created or written to; it need not exist."""
  if str(folder).startswith('-'):  # As in `--workdir --check`.
    raise UserError(
      f'--{flag} needs a directory; got {folder}; write ./{folder} if that is its name'
    )
  parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
  if not parent.is_dir() or not os.access(parent, os.W_OK):
    raise UserError(
      f'--{flag} needs a directory to write to; {parent} is a file, or may not be written to'
    )
