"""Files that are kept for the next start, beside the programs that JAX keeps compiled.

JAX's folder of compiled programs belongs to the user alone, and what is unused there for long is
removed. Where JAX keeps nothing, nothing is kept. Each file begins with a digest of its content.
"""

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
  return Path(name) if name else None


def read(path: Path) -> bytes | None:
  """Returns the content of a file; None if there is none, or it is damaged."""
  try:
    content = path.read_bytes()
  except FileNotFoundError:
    return None
  except OSError as error:
    logging.warning('%s cannot be read, so what it keeps is made again: %s', path, error.strerror)
    return None
  if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
    logging.warning('%s is damaged, so what it keeps is made again', path)
    return None
  return content[_DIGEST:]


def write(path: Path, content: bytes):
  """Writes a file that `read` reads; warns if that fails."""
  try:
    files.write(path, hashlib.sha256(content).digest() + content)
  except UserError as error:
    logging.warning('a file is not kept for the next start: %s', error)
