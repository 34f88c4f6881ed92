"""Checks of the files and folders that a command will write, before it starts its work."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from transformer import files
from transformer.errors import UserError

_NEVER_PACKED = '.bz2', '.xz', '.zip', '.lz4', '.7z'


def check_file(flag: str, path: Path):
  """Refuses a file that `write` could not write; it need not exist."""
  if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
    raise UserError(
      f'--{flag} must name a file to write to; {path} is a directory, or may not be written to'
    )
  if path.suffix.lower() in _NEVER_PACKED:
    raise UserError(
      f'--{flag}={path} would be plain text under the name of a packed file; only '
      f'{" and ".join(files.PACKED)} are packed; give it one of these endings'
    )
  files.packer(path, 'compress')
  if not _is_stream(path):
    check_folder(flag, Path(os.path.realpath(path)).parent)


def write(path: Path, content: bytes):
  """Writes a file that a flag names: atomically, unless it is a device or a pipe.

  The content is packed if the name ends in `.gz` or `.zst`. If the path is a link, its target is
  written.
  """
  if pack := files.packer(path, 'compress'):
    # Equal texts are equal files: gzip would store the time.
    content = pack(content, mtime=0) if path.suffix.lower() == '.gz' else pack(content)
  if not _is_stream(path):
    files.write(os.path.realpath(path), content)
    return
  try:
    with path.open('ab') as stream:
      stream.write(content)
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error.strerror}; name another file') from error


def _is_stream(path: Path) -> bool:
  """Returns whether a path is a device or a pipe, such as /dev/null or that of `>(command)`."""
  # Standard output may be a regular file, to which this process goes on writing.
  in_use = str(path.absolute()).startswith(('/dev/fd/', '/dev/std', '/proc/'))
  return path.exists() and (in_use or not path.is_file())


def check_not_read(flag: str, path: Path, inputs: Iterable[str | os.PathLike]):
  """Refuses to replace a file that the command reads, under this name or another.

  None of the files need exist; `-` among the inputs is standard input.
  """
  for name in inputs:
    try:
      read = os.stat(0 if name == '-' else files.as_path(name))
      same = os.path.samestat(read, os.stat(path))
    except OSError:  # One of the two does not exist.
      continue
    if same and stat.S_ISREG(read.st_mode):  # Not a terminal or /dev/null.
      raise UserError(
        f'--{flag}={path} would replace what is read: it is '
        f'{"standard input" if name == "-" else name}; name another file'
      )


def check_folder(flag: str, folder: Path):
  """Refuses a folder that could not be made or written to; it need not exist."""
  if str(folder).startswith('-'):  # As in `--workdir --check`.
    raise UserError(
      f'--{flag} needs a directory; got {folder}; write ./{folder} if that is its name'
    )
  there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
  if not there.is_dir() or not os.access(there, os.W_OK):
    raise UserError(
      f'--{flag} needs a directory to write to; {there} is a file, or may not be written to'
    )
