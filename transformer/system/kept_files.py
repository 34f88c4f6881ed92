"""Files that are kept for the next start, beside the programs that JAX keeps compiled.

Where JAX keeps nothing, or keeps it in a store such as `gs://…`, nothing is kept. Each file begins
with a digest of its content.
"""

import contextlib
import hashlib
from pathlib import Path

import jax
from absl import logging

from transformer import files
from transformer.errors import UserError

_DIGEST = hashlib.sha256().digest_size


def folder() -> Path | None:
  """Returns the folder of the files; None if nothing is kept."""
  name = jax.config.jax_compilation_cache_dir
  if not name or '://' in name or not jax.config.jax_enable_compilation_cache:
    return None
  return Path(name)


def read(path: Path) -> bytes | None:
  """Returns the content of a file; None if there is none, or it is damaged."""
  try:
    content = path.read_bytes()
  except FileNotFoundError:
    return None
  except OSError as error:
    logging.warning('%s cannot be read, so its content is made again: %s', path, error.strerror)
    return None
  if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
    logging.warning('%s is damaged, so its content is made again', path)
    return None
  return content[_DIGEST:]


def write(path: Path, content: bytes):
  """Writes a file that `read` reads; warns if that fails."""
  try:
    files.write(path, hashlib.sha256(content).digest() + content)
  except UserError as error:
    logging.warning('a file is not kept for the next start: %s', error)


def remove_oldest(folder: Path, pattern: str, limit: int):
  """Removes the files that were not used for longest, until the rest have at most `limit` bytes.

  Args:
    folder: of the files.
    pattern: which files count, such as `mean-*`.
    limit: in bytes. The file used last stays, whatever its size.
  """
  used = []
  for path in folder.glob(pattern):
    with contextlib.suppress(FileNotFoundError):  # Another process was quicker.
      status = path.stat()
      used.append((max(status.st_atime, status.st_mtime), status.st_size, path))
  total = 0
  for number, (_, size, path) in enumerate(sorted(used, reverse=True)):
    total += size
    if number and total > limit:
      with contextlib.suppress(OSError):
        path.unlink()
