"""Writes and reads files of safetensors; only this file imports that package."""

import os
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from transformer import files
from transformer.errors import UserError, message_in_one_line


def write(path: str | os.PathLike, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]):
  """Writes a file atomically.

  Args:
    path: the file.
    tensors: by name.
    metadata: one entry, because safetensors writes several in a random order.

  Raises:
    UserError: the file cannot be written.
  """
  files.write(path, save({name: np.ascontiguousarray(each) for name, each in tensors.items()},
                         dict(metadata)))


def read(path: str | os.PathLike) -> tuple[dict[str, str], dict[str, np.ndarray]]:
  """Returns a file's metadata and tensors.

  Raises:
    UserError: the file cannot be read, is damaged, or has another format.
  """
  try:
    with safe_open(path, 'numpy') as file:
      return (file.metadata() or {},
              {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118, no dict
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror or error}') from error
  except (SafetensorError, TypeError, ValueError) as error:
    raise UserError(f'{path} should be a safetensors file; it is not, or is damaged: '
                    f'{message_in_one_line(error)}; restore it from a copy') from error
