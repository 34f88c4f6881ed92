"""Keeps traced programs, and shapes of results, on disk beside the programs that JAX compiled.

JAX finds a compiled program by its traced form, so each process would trace it again. For a search
that takes longer than to load the compiled program. A model is traced for the shapes of its
parameters, too.

The name of each file holds a digest of all that its content depends on: the code, the versions and
settings of JAX, and what the function is given. The files lie in JAX's folder of compiled programs,
and are unused after the same time. Where JAX keeps nothing, neither does this module.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from absl import logging
from jax import export

from transformer import files
from transformer.errors import UserError

_CODE = Path(__file__).resolve().parents[1]
_DIGEST = hashlib.sha256().digest_size


def keep_traced(function: Callable[..., Any], about: str, rooms: Sequence[str],
                arguments: Sequence[Any], donated: Sequence[int] = ()) -> Callable[..., Any]:
  """Compiles a function, which an earlier process may have traced.

  Only programs for one CPU are kept; others are traced.

  Args:
    function: a pure function on arrays, which returns tuples or dicts of arrays.
    about: text that names everything that is not an array and that the function depends on.
    rooms: the folders of this package with the code of the function.
    arguments: arrays, or their shapes, of the calls to come.
    donated: the numbers of the arguments whose memory the results may use.

  Returns:
    The function for arguments of these shapes, compiled for the device that they are on.
  """
  folder = jax.config.jax_compilation_cache_dir
  if not folder or jax.default_backend() != 'cpu':
    return jax.jit(function, donate_argnums=donated)
  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
  path = Path(folder, f'traced-{_key(about, rooms, shapes)}')
  content = _read(path)
  if content is not None:
    program = export.deserialize(bytearray(content))
  else:
    program = export.export(jax.jit(function))(*shapes)
    _write(path, bytes(program.serialize()))
  return jax.jit(program.call, donate_argnums=donated)


def keep_shapes(function: Callable[[], Any], about: str, rooms: Sequence[str]) -> Any:
  """Returns the shapes of a function's result, which an earlier process may have traced.

  Args:
    function: returns nested dicts of arrays, with text for keys.
    about, rooms: as for `keep_traced`.

  Returns:
    The nested dicts, with a `jax.ShapeDtypeStruct` for each array.
  """
  folder = jax.config.jax_compilation_cache_dir
  if not folder:
    return jax.eval_shape(function)
  path = Path(folder, f'shapes-{_key(about, rooms, ())}')
  content = _read(path)
  if content is None:
    shapes = jax.eval_shape(function)
    _write(path, json.dumps(jax.tree.map(lambda leaf: [leaf.dtype.name, *leaf.shape],
                                         shapes)).encode())
    return shapes
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf[1:], leaf[0]), json.loads(content),
                      is_leaf=lambda node: isinstance(node, list))


def _write(path: Path, content: bytes):
  """Writes a file that `_read` reads; warns if that fails."""
  try:
    files.write(path, hashlib.sha256(content).digest() + content)
  except UserError as error:
    logging.warning('a traced program is not kept for the next start: %s', error)


def _read(path: Path) -> bytes | None:
  """Returns the content of a file; None if there is none, or it is damaged."""
  try:
    content = path.read_bytes()
  except FileNotFoundError:
    return None
  except OSError as error:
    logging.warning('%s cannot be read, so its program is traced again: %s', path, error.strerror)
    return None
  if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
    logging.warning('%s is damaged, so its program is traced again', path)
    return None
  return content[_DIGEST:]


def _key(about: str, rooms: Sequence[str], shapes: Any) -> str:
  """Returns a digest of all that a file's content depends on."""
  settings = sorted((name, repr(value)) for name, value in jax.config.values.items())
  found = (about, repr(shapes), settings, os.environ.get('XLA_FLAGS'), *map(_code_of, rooms),
           [metadata.version(name) for name in ('jax', 'jaxlib', 'flax')])
  return hashlib.sha256(repr(found).encode()).hexdigest()


@functools.cache
def _code_of(room: str) -> str:
  """Returns a digest of the code in a folder of this package."""
  digest = hashlib.sha256()
  for path in sorted((_CODE / room).rglob('*.py')):
    digest.update(path.read_bytes())
  return digest.hexdigest()
