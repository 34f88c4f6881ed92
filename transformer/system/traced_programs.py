"""Keeps traced programs, and shapes of results, for the next start, beside JAX's compiled programs.

JAX finds a compiled program by its traced form, so each process would trace it again. Tracing a
search takes longer than loading its compiled program. A model is traced for the shapes of its
parameters, too.

The name of each file holds a digest of all that its content depends on: the code, the versions and
settings of JAX, and what the function is given. The file begins with a digest of its content. Where
JAX keeps nothing, or keeps it in a store such as `gs://…`, nothing is kept.
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
                arguments: Sequence[Any]) -> Callable[..., Any]:
  """Traces a function, unless an earlier process has traced it.

  Only programs for one CPU are kept; another function is returned as it is.

  Args:
    function: a pure function on arrays, which returns tuples or dicts of arrays.
    about: text that names everything that is not an array and that the function depends on.
    rooms: the folders of this package with the code of the function.
    arguments: arrays, or their shapes, of the calls to come.

  Returns:
    The function for arguments of these shapes, to be compiled by `jax.jit`.
  """
  folder = _folder()
  if folder is None or jax.default_backend() != 'cpu':
    return function
  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
  content = _kept(folder / f'traced-{_key(about, rooms, shapes)}', lambda: bytes(
      export.export(jax.jit(function))(*shapes).serialize()))
  return export.deserialize(bytearray(content)).call


def keep_shapes(function: Callable[[], Any], about: str, rooms: Sequence[str]) -> Any:
  """Returns the shapes of a function's result, which an earlier process may have traced.

  Args:
    function: returns nested dicts of arrays, with text for keys.
    about, rooms: as for `keep_traced`.

  Returns:
    The nested dicts, with a `jax.ShapeDtypeStruct` for each array.
  """
  folder = _folder()
  if folder is None:
    return jax.eval_shape(function)
  content = _kept(folder / f'shapes-{_key(about, rooms, ())}', lambda: json.dumps(jax.tree.map(
      lambda leaf: [leaf.dtype.name, *leaf.shape], jax.eval_shape(function))).encode())
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf[1:], leaf[0]), json.loads(content),
                      is_leaf=lambda node: isinstance(node, list))


def _folder() -> Path | None:
  """Returns the folder of the files; None if nothing is kept."""
  name = jax.config.jax_compilation_cache_dir
  if not name or '://' in name or not jax.config.jax_enable_compilation_cache:
    return None
  return Path(name)


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
  """Returns the content of a file; makes and writes it if there is none, or it is damaged."""
  try:
    content = path.read_bytes()
    if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
      return content[_DIGEST:]
    logging.warning('%s is damaged, so its content is made again', path)
  except OSError:
    pass
  content = make()
  try:
    files.write(path, hashlib.sha256(content).digest() + content)
  except UserError as error:
    logging.warning('a file is not kept for the next start: %s', error)
  return content


def _key(about: str, rooms: Sequence[str], shapes: Any) -> str:
  """Returns a digest of all that a file's content depends on."""
  settings = sorted((name, repr(value)) for name, value in jax.config.values.items())
  content = (about, repr(shapes), settings, os.environ.get('XLA_FLAGS'), *map(_code_of, rooms),
             [metadata.version(name) for name in ('jax', 'jaxlib', 'flax')])
  return hashlib.sha256(repr(content).encode()).hexdigest()


@functools.cache
def _code_of(room: str) -> str:
  """Returns a digest of the code in a folder of this package."""
  digest = hashlib.sha256()
  for path in sorted((_CODE / room).rglob('*.py')):
    digest.update(path.read_bytes())
  return digest.hexdigest()
