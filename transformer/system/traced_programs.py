"""Keeps traced programs, and shapes of results, for the next start.

JAX finds a compiled program by its traced form, so each process would trace it again. Tracing a
search takes longer than loading its compiled program. A model is traced for the shapes of its
parameters, too.

The name of each file holds a digest of all that its content depends on: the code, the versions and
settings of JAX, and what the function is given.
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
from jax import export

from transformer.system import kept_files

_CODE = Path(__file__).resolve().parents[1]


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
  folder = kept_files.folder()
  if folder is None or jax.default_backend() != 'cpu':
    return jax.jit(function, donate_argnums=donated)
  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
  path = folder / f'traced-{_key(about, rooms, shapes)}'
  content = kept_files.read(path)
  if content is not None:
    program = export.deserialize(bytearray(content))
  else:
    program = export.export(jax.jit(function))(*shapes)
    kept_files.write(path, bytes(program.serialize()))
  return jax.jit(program.call, donate_argnums=donated)


def keep_shapes(function: Callable[[], Any], about: str, rooms: Sequence[str]) -> Any:
  """Returns the shapes of a function's result, which an earlier process may have traced.

  Args:
    function: returns nested dicts of arrays, with text for keys.
    about, rooms: as for `keep_traced`.

  Returns:
    The nested dicts, with a `jax.ShapeDtypeStruct` for each array.
  """
  folder = kept_files.folder()
  if folder is None:
    return jax.eval_shape(function)
  path = folder / f'shapes-{_key(about, rooms, ())}'
  content = kept_files.read(path)
  if content is None:
    shapes = jax.eval_shape(function)
    named = jax.tree.map(lambda leaf: [leaf.dtype.name, *leaf.shape], shapes)
    kept_files.write(path, json.dumps(named).encode())
    return shapes
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf[1:], leaf[0]), json.loads(content),
                      is_leaf=lambda node: isinstance(node, list))


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
