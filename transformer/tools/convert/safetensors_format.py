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

from transformer.config import flatten
from transformer.data.config import SEPARATE_VOCABULARIES, SHARED_VOCABULARY
from transformer.errors import UserError
from transformer.tools.convert import tensor_file

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
  """Writes a file atomically.

  Raises:
    UserError: the file cannot be written, or a parameter has the name of a vocabulary.
  """
  tensors = {name: np.asarray(leaf) for name, leaf in flatten(weights.params).items()}
  if taken := tensors.keys() & weights.vocabulary.keys():
    raise UserError(f'the file keeps a vocabulary as {min(taken)}, and the run has a parameter of '
                    f'that name; rename the parameter')
  tensors |= {name: np.frombuffer(model, np.uint8) for name, model in weights.vocabulary.items()}
  about = {'version': _VERSION, 'config': weights.config,
           'vocabulary_sha256': _vocabulary_digest(weights.vocabulary),
           'steps': list(weights.steps)}
  about['sha256'] = _digest(tensors, about)
  tensor_file.write(path, tensors, {FORMAT: json.dumps(about)})


def read(path: str | os.PathLike) -> Weights:
  """Reads a file of `write`.

  Raises:
    UserError: the file cannot be read, is damaged, or has another format.
  """
  about, tensors = _open(path)
  digest = about['sha256']
  if digest is not None and digest != _digest(tensors, about):
    raise UserError(f'{path} is damaged or was changed: its content does not match its sha256; '
                    f'restore it from a copy, or set sha256 in its metadata to null')
  vocabulary = {name: tensors.pop(name).tobytes()
                for name in (*SHARED_VOCABULARY, *SEPARATE_VOCABULARIES) if name in tensors}
  if _vocabulary_digest(vocabulary) != about['vocabulary_sha256']:
    raise UserError(f'{path} should hold the vocabulary of its metadata as '
                    f'{SHARED_VOCABULARY[0]}, or as {" and ".join(SEPARATE_VOCABULARIES)}; it '
                    f'holds another, or none; restore it from a copy')
  return Weights(about['config'], vocabulary, about['steps'], _unflatten(tensors, path))


def _open(path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns a file's metadata, with checked types, and its tensors."""
  metadata, tensors = tensor_file.read(path)
  if FORMAT not in metadata:
    raise UserError(f'{path} should be a file of --format=safetensors; its metadata has no entry '
                    f'{FORMAT!r}; give another file')
  try:
    about = json.loads(metadata[FORMAT])
    steps = about['steps']
    if (about['version'] != _VERSION or not isinstance(about['config'], dict)
        or not (steps and all(type(step) is int and step >= 0 for step in steps))
        or not {'sha256', 'vocabulary_sha256'} <= about.keys()):
      raise ValueError('an entry has another version or type')
  except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
    raise UserError(f'{path} should have metadata in version {_VERSION}; it cannot be understood '
                    f'({error!r}); restore it from a copy') from error
  return about, tensors


def _unflatten(tensors: Mapping[str, np.ndarray], path) -> dict[str, Any]:
  """Returns nested dicts of tensors with dotted names."""
  params: dict[str, Any] = {}
  for name, array in tensors.items():
    *folders, last = name.split('.')
    place = params
    for folder in folders:
      place = place.setdefault(folder, {})
      if not isinstance(place, dict):
        break
    if not isinstance(place, dict) or last in place:
      raise UserError(f'{path} has a tensor {name!r} that cannot be beside its others; give a '
                      f'file of --format=safetensors')
    place[last] = array
  return params


def _vocabulary_digest(vocabulary: Mapping[str, bytes]) -> str:
  return hashlib.sha256(b''.join(vocabulary.values())).hexdigest()


def _digest(tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
  rest = {name: value for name, value in about.items() if name != 'sha256'}
  digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
  for name, array in sorted(tensors.items()):
    digest.update(f'\n{name} {array.dtype} {array.shape}\n'.encode())
    digest.update(np.ascontiguousarray(array))
  return digest.hexdigest()
