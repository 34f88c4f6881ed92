"""A trained model as one safetensors file, and back; the one file that knows that package.

A tensor's name is its place among the parameters, joined by dots. All are float32, with
the axes that the README names; matrices are [inputs …, outputs …]:

  target_embedding.table                 [N, D]; source_embedding.table where it is another
  target_position.table                  [positions, D], and source_position.table, where learned
  encoder_0.self_attention.query.kernel  [D, H, K], and .bias [H, K]; key the same
  encoder_0.self_attention.value.kernel  [D, H, V], and .bias [H, V]
  encoder_0.self_attention.output.kernel [H, V, D], and .bias [D]
  encoder_0.self_attention.query_norm.scale  [K], and key_norm.scale, under query_key_norm
  encoder_0.self_attention_residual.layer_norm.scale  [D], and .bias unless it is RMS norm
  encoder_0.feed_forward.inner.kernel    [D, F], .bias [F]; outer [F, D]; gate, without biases
  encoder_0.feed_forward_residual.layer_norm.scale
  decoder_0. …                           the same, and cross_attention, cross_attention_residual
  encoder_norm.scale, decoder_norm.scale [D], and .bias, where norms come before
  encoder_bias.table, decoder_bias.table [32, H], where positions are relative
  output                                 [N, D], where it is not target_embedding.table
  vocabulary.model                       uint8, the bytes of the SentencePiece model

The metadata has one entry, `FORMAT`, which is JSON: `version`; `config`, the run's settings;
`vocabulary_sha256`; `steps`, the checkpoints that were averaged; and `sha256`, a digest of
everything else, by which damage is found. Whoever changes a tensor sets `sha256` to null.
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
from transformer.errors import UserError

FORMAT = 'attention-is-all-you-need-jax'
VOCABULARY = 'vocabulary.model'
_VERSION = 1


class Weights(NamedTuple):
  """What a file holds.

  Attributes:
    config: nested dicts, not yet checked.
    vocabulary: the bytes of the SentencePiece model.
    steps: the checkpoints that the parameters come from.
    params: nested dicts of float32 arrays.
  """

  config: dict[str, Any]
  vocabulary: bytes
  steps: list[int]
  params: dict[str, Any]


def write(path: str | os.PathLike, weights: Weights):
  """Writes a file that is whole or not there.

  Raises:
    UserError: it cannot be written.
  """
  tensors = {name: np.asarray(leaf) for name, leaf in flatten(weights.params).items()}
  tensors[VOCABULARY] = np.frombuffer(weights.vocabulary, np.uint8)
  about = {'version': _VERSION, 'config': weights.config,
           'vocabulary_sha256': hashlib.sha256(weights.vocabulary).hexdigest(),
           'steps': list(weights.steps)}
  about['sha256'] = _digest(tensors, about)
  # One entry, since safetensors writes several in an order of its own, another every time.
  files.write(path, save(tensors, {FORMAT: json.dumps(about)}))


def read(path: str | os.PathLike) -> Weights:
  """Reads what `write` wrote.

  Raises:
    UserError: it cannot be read, or is damaged, or is another program's.
  """
  about, tensors = _open(path)
  digest = about['sha256']
  if digest is not None and digest != _digest(tensors, about):
    raise UserError(f'{path} is damaged, or was changed: its sha256 is of something else; restore '
                    f'it from a copy, or set sha256 in its metadata to null')
  vocabulary = tensors.pop(VOCABULARY, np.zeros(0, np.uint8)).tobytes()
  if hashlib.sha256(vocabulary).hexdigest() != about['vocabulary_sha256']:
    raise UserError(f'{path} should hold the vocabulary that its metadata names, as {VOCABULARY}; '
                    f'it is another, or missing; restore it from a copy')
  return Weights(about['config'], vocabulary, about['steps'], _unflatten(tensors, path))


def _open(path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """What a file says of itself, as far as it is of the right types, and its tensors."""
  try:
    with safe_open(path, 'numpy') as file:
      metadata = file.metadata() or {}
      tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror or error}') from error
  except (SafetensorError, TypeError, ValueError) as error:
    raise UserError(f'{path} should be a safetensors file, and is none, or is damaged: '
                    f'{" ".join(str(error).split())}; restore it from a copy') from error
  if FORMAT not in metadata:
    raise UserError(f'{path} should be a file of this project; its metadata has no entry '
                    f'{FORMAT!r}; give one that --format=safetensors wrote')
  try:
    about = json.loads(metadata[FORMAT])
    steps = about['steps']
    if (about['version'] != _VERSION or not isinstance(about['config'], dict)
        or not (steps and all(type(step) is int and step >= 0 for step in steps))
        or not {'sha256', 'vocabulary_sha256'} <= about.keys()):
      raise ValueError('an entry is of another version, or kind')
  except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
    raise UserError(f'{path} should say in its metadata what it is, in version {_VERSION}; that '
                    f'cannot be understood ({error!r}); restore it from a copy') from error
  return about, tensors


def flatten(params: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Nested parameters as one dict of dotted names, in their order."""
  flat = {}
  for name, value in sorted(params.items()):
    flat.update(flatten(value, f'{prefix}{name}.') if isinstance(value, Mapping)
                else {prefix + name: value})
  return flat


def _unflatten(tensors: Mapping[str, np.ndarray], path) -> dict[str, Any]:
  params: dict[str, Any] = {}
  for name, array in tensors.items():
    *folders, last = name.split('.')
    place = params
    for folder in folders:
      place = place.setdefault(folder, {})
      if not isinstance(place, dict):
        break
    if not isinstance(place, dict) or last in place:
      raise UserError(f'{path} has a tensor {name!r} that cannot be beside its others; give one '
                      f'that --format=safetensors wrote')
    place[last] = array
  return params


def _digest(tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
  rest = {name: value for name, value in about.items() if name != 'sha256'}
  digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
  for name, array in sorted(tensors.items()):
    digest.update(f'\n{name} {array.dtype} {array.shape}\n'.encode())
    digest.update(np.ascontiguousarray(array))
  return digest.hexdigest()
