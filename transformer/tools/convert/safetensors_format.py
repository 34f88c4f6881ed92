"""Writes and reads a model as one safetensors file.

A tensor's name is its path among the parameters, joined by dots. All parameters are float32.
Matrices are [inputs …, outputs …], with the letters of the README for their axes:

  target_embedding.table             [N, D]; source_embedding likewise, unless share_embeddings
  target_position.table              [positions, D], if learned; source_position likewise
  encoder_0.self_attention
    .query.kernel, .query.bias       [D, H, K], [H, K]; key likewise
    .value.kernel, .value.bias       [D, H, V], [H, V]
    .output.kernel, .output.bias     [H, V, D], [D]
    .query_norm.scale                [K], if query_key_norm; key_norm likewise
  encoder_0.feed_forward
    .inner.kernel, .inner.bias       [D, F], [F]
    .outer.kernel, .outer.bias       [F, D], [D]
    .gate.kernel                     [D, F], if swiglu, where inner and outer have no bias
  encoder_0.self_attention_residual and encoder_0.feed_forward_residual
    .layer_norm.scale, ….bias        [D], [D]; without bias if rms_norm
  decoder_0. …                       likewise, with cross_attention, cross_attention_residual
  encoder_norm.scale, .bias          [D], [D], if norm is pre; decoder_norm likewise
  encoder_bias.table                 [32, H], if positions are relative; decoder_bias likewise
  output                             [N, D], unless tie_output
  output_bias                        [N], if output_bias
  vocabulary.model                   uint8, the bytes of the SentencePiece model; or
                                     vocabulary.source.model and vocabulary.target.model

The metadata has one entry, `FORMAT`, a JSON object:

  version            1
  config             the settings of the run
  vocabulary_sha256  the digest of vocabulary.model, or of the two models, end to end
  steps              the steps of the checkpoints that were averaged
  sha256             the digest of everything else, or null; set it to null to change a tensor
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from transformer import files
from transformer.config import flatten
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY
from transformer.errors import UserError, message_in_one_line

FORMAT = 'attention-is-all-you-need-jax'
_VERSION = 1


class Weights(NamedTuple):
  """The content of a file.

  Attributes:
    config: the settings of the run as nested dicts; `read` does not check them.
    vocabulary: the bytes of the SentencePiece models, by the names of their files.
    steps: the steps of the checkpoints that were averaged.
    params: nested dicts of float32 arrays.
  """

  config: dict[str, Any]
  vocabulary: Mapping[str, bytes]
  steps: list[int]
  params: dict[str, Any]


def write(path: str | os.PathLike, weights: Weights):
  """Writes a file atomically."""
  tensors = {name: np.asarray(leaf) for name, leaf in flatten(weights.params).items()}
  tensors |= {name: np.frombuffer(model, np.uint8) for name, model in weights.vocabulary.items()}
  models = hashlib.sha256(b''.join(weights.vocabulary.values()))
  about = {'version': _VERSION, 'config': weights.config, 'vocabulary_sha256': models.hexdigest(),
           'steps': list(weights.steps)}
  about['sha256'] = _digest(tensors, about)
  write_tensors(path, tensors, {FORMAT: json.dumps(about)})


def read(path: str | os.PathLike) -> Weights:
  """Reads a file of `write`.

  Raises:
    UserError: the file cannot be read, is damaged, or has another format.
  """
  metadata, tensors = read_tensors(path)
  try:
    about = json.loads(metadata.get(FORMAT, '{}'))
  except ValueError:  # It is damaged.
    about = {}
  if about.get('version') != _VERSION:
    raise UserError(f'{path} should be a file of --format=safetensors, with {FORMAT} in version '
                    f'{_VERSION}; its metadata has no such entry; give another file')
  digest = about.pop('sha256', '')
  if digest is not None and digest != _digest(tensors, about):
    raise UserError(f'{path} is damaged or was changed: its content does not match its sha256; '
                    f'restore it from a copy, or set sha256 in its metadata to null')
  vocabulary = {name: tensors.pop(name).tobytes()
                for name in (*SHARED_VOCABULARY, *SEPARATE_VOCABULARIES) if name in tensors}
  params: dict[str, Any] = {}
  for name, array in tensors.items():
    *folders, last = name.split('.')
    place = params
    for folder in folders:
      place = place.setdefault(folder, {})
    place[last] = array
  return Weights(about['config'], vocabulary, about['steps'], params)


def write_tensors(path: str | os.PathLike, tensors: Mapping[str, np.ndarray],
                  metadata: Mapping[str, str]):
  """Writes any tensors atomically; one entry of metadata, since several get a random order."""
  files.write(path, save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
                         dict(metadata)))


def read_tensors(path: str | os.PathLike) -> tuple[dict[str, str], dict[str, np.ndarray]]:
  """Returns the metadata and the tensors of any file of safetensors."""
  try:
    with safe_open(path, 'numpy') as file:
      return (file.metadata() or {},
              {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118, no dict
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror or error}') from error
  except (SafetensorError, TypeError, ValueError) as error:
    raise UserError(f'{path} should be a safetensors file; it is not, or is damaged: '
                    f'{message_in_one_line(error)}; restore it from a copy') from error


def _digest(tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
  digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
  for name, array in sorted(tensors.items()):
    digest.update(f'\n{name} {array.dtype} {array.shape}\n'.encode())
    digest.update(np.ascontiguousarray(array))
  return digest.hexdigest()
