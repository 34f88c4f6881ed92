"""Writes and reads a model as one safetensors file.

docs/export.md has the names and shapes of the tensors. The metadata has one entry, `FORMAT`: a JSON
object with the rest of a run.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flax import traverse_util

from transformer import files
from transformer.config import flatten
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY
from transformer.errors import UserError, type_and_message
from transformer.tools._requirements import requirements

with requirements(__file__):
  from safetensors import SafetensorError, safe_open
  from safetensors.numpy import save

FORMAT = 'attention-is-all-you-need-jax'
_VERSION = 1


class Weights(NamedTuple):
  """The content of a file.

  Attributes:
    config: the settings of a run, unchecked.
    vocabulary: the SentencePiece models of its vocabulary, by file name.
    steps: the steps of the averaged checkpoints.
    params: the parameters, nested dicts.
  """

  config: dict[str, Any]
  vocabulary: Mapping[str, bytes]
  steps: list[int]
  params: dict[str, Any]


def write(path: str | os.PathLike, weights: Weights):
  """Writes a file atomically."""
  tensors = {}
  for name, leaf in flatten(weights.params).items():
    tensors[name] = np.asarray(leaf)
  for name, model in weights.vocabulary.items():
    tensors[name] = np.frombuffer(model, np.uint8)
  header: dict[str, Any] = {
    'version': _VERSION,
    'config': weights.config,
    'steps': list(weights.steps),
  }
  header['sha256'] = _digest(tensors, header)
  write_tensors(path, tensors, {FORMAT: json.dumps(header)})


def read(path: str | os.PathLike) -> Weights:
  """Reads a file that `write` has written.

  Raises:
    UserError: the file is corrupt, was modified, or has a different format.
  """
  metadata, tensors = read_tensors(path)
  try:
    header = json.loads(metadata.get(FORMAT, '{}'))
  except ValueError:  # Corrupt metadata.
    header = {}
  if header.get('version') != _VERSION:
    raise UserError(
      f'{path} should be a file of --format=safetensors, with {FORMAT} in version {_VERSION}; '
      'its metadata has no such entry; pass a different file'
    )
  digest = header.pop('sha256', '')
  if digest is not None and digest != _digest(tensors, header):
    raise UserError(
      f'{path} is damaged or was changed: its content does not match its sha256; '
      f'restore it from a copy, or set sha256 in its metadata to null'
    )
  vocabulary = {}
  for name in (*SHARED_VOCABULARY, *SEPARATE_VOCABULARIES):
    if name in tensors:
      vocabulary[name] = tensors.pop(name).tobytes()
  params = traverse_util.unflatten_dict(tensors, sep='.')
  return Weights(header['config'], vocabulary, header['steps'], params)


def write_tensors(
  path: str | os.PathLike,
  tensors: Mapping[str, np.ndarray],
  metadata: Mapping[str, str],
):
  """Writes tensors atomically; pass one metadata entry, since more are written in random order."""
  contiguous = {}
  for name, tensor in tensors.items():
    contiguous[name] = np.ascontiguousarray(tensor)
  files.write(path, save(contiguous, dict(metadata)))


def read_tensors(
  path: str | os.PathLike,
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
  """Returns the metadata and the tensors of any safetensors file.

  Raises:
    UserError: the file cannot be read, or contains NaN or infinity.
  """
  try:
    with safe_open(path, 'numpy') as file:
      metadata = file.metadata() or {}
      tensors = {}
      for name in file.keys():  # noqa: SIM118, not a dict
        tensors[name] = file.get_tensor(name)
  except OSError as error:
    raise UserError(
      f'{path} cannot be read: {error.strerror or error}; choose a different file, or '
      f'restore it from a copy'
    ) from error
  # NumPy lacks the 8-bit types.
  except (SafetensorError, AttributeError, TypeError, ValueError) as error:
    raise UserError(
      f'{path} should be a safetensors file; it is not, or is damaged: '
      f'{type_and_message(error)}; restore it from a copy'
    ) from error
  for name, tensor in tensors.items():
    if not np.isfinite(tensor).all():
      raise UserError(
        f'{path} holds NaN or infinity in {name}; take weights of an earlier '
        f'checkpoint, or save in float32 what float16 cannot hold'
      )
  return metadata, tensors


def _digest(tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> str:
  """Returns the SHA-256 of all tensors and metadata."""
  digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
  for name, array in sorted(tensors.items()):
    digest.update(f'\n{name} {array.dtype} {array.shape}\n'.encode())
    digest.update(np.ascontiguousarray(array))
  return digest.hexdigest()
