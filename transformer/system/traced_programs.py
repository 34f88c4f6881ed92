"""Caches traced programs for later processes, next to JAX's compiled programs.

JAX looks up a compiled program by its traced form, so each process would trace it again. Tracing a
search takes longer than loading its compiled program. The name of each file contains a digest of
everything that its content depends on: the code, the versions and settings of JAX, and the shapes
and other inputs of the function.
"""

import contextlib
import functools
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path

import jax
from jax import export

from transformer import files
from transformer.errors import UserError

_CODE = Path(__file__).resolve().parents[1]


def register_named_tuples(*kinds: type):
  """Allows caching of programs whose arguments or results are named tuples of these types."""
  for kind in kinds:
    export.register_namedtuple_serialization(
      kind, serialized_name=f'{kind.__module__}.{kind.__qualname__}'
    )


def cache_traced(
  function: Callable, identity: str, modules: Iterable[str], arguments: Sequence
) -> Callable:
  """Returns a function to be compiled by `jax.jit`, which an earlier process may have traced.

  Only programs for one CPU are cached, and only where JAX caches its own, in a local folder; any
  other function is returned unchanged.

  Args:
    function: a pure function on arrays in tuples, dicts, and types that are registered for export.
    identity: text that identifies all inputs of the function that are not arrays.
    modules: the modules with the code of the function. If one is outside this package, its code may
      change unnoticed, so nothing is cached.
    arguments: arrays, or their shapes, of later calls.
  """
  folder = jax.config.jax_compilation_cache_dir
  if (
    not folder
    or '://' in folder
    or not jax.config.jax_enable_compilation_cache
    or jax.default_backend() != 'cpu'
    or any(module.partition('.')[0] != _CODE.name for module in modules)
  ):
    return function
  shapes = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments
  )
  settings = sorted((name, repr(value)) for name, value in jax.config.values.items())
  versions = [metadata.version(name) for name in ('jax', 'jaxlib', 'flax')]
  key = repr(
    (identity, shapes, settings, os.environ.get('XLA_FLAGS'), _code(), versions)
  )
  path = Path(folder, f'traced-{hashlib.sha256(key.encode()).hexdigest()}')
  try:
    content = zlib.decompress(path.read_bytes())  # zlib verifies a checksum.
  except (OSError, zlib.error):
    exported = export.export(jax.jit(function))(*shapes)
    try:
      content = bytes(exported.serialize())
    except ValueError:  # A type of its arguments or results is not registered.
      return function
    # If the folder is not writable, JAX itself warns.
    with contextlib.suppress(UserError):
      files.write(path, zlib.compress(content, 1))
  return export.deserialize(bytearray(content)).call


@functools.cache
def _code() -> str:
  """Returns a digest of the code of this package."""
  sources = sorted(_CODE.rglob('*.py'))
  return hashlib.sha256(b''.join(path.read_bytes() for path in sources)).hexdigest()
