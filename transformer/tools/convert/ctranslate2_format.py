"""Writes a model in the format of CTranslate2; only this file imports that package.

CTranslate2 takes and returns pieces of the run's vocabulary, and appends EOS to the source itself.
Its probabilities equal this project's up to rounding; docs/export.md explains the differences in
search. The unknown token never occurs, because the vocabulary represents unknown characters as
bytes. The rare characters U+2581 and U+2585 are escaped by `Vocabulary`, but not by SentencePiece.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer.config import flatten
from transformer.data.batch import BOS_ID, EOS_ID, UNK_ID
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions
from transformer.tools._requirements import requirements
from transformer.tools.convert.unsupported import check_no_plugins, check_supported

with requirements(__file__):
  from ctranslate2.specs import (
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
  )
  from ctranslate2.specs.common_spec import Activation

_MAX_INPUT_LENGTH = 1024  # CTranslate2's default.
_ACTIVATIONS = {
  'relu': Activation.RELU,
  'gelu': Activation.GELU,
  'silu': Activation.SWISH,
  'swiglu': Activation.SWISH,
}
_FEED_FORWARD = {'inner': 'linear_0', 'outer': 'linear_1', 'gate': 'linear_0_noact'}
# All larger distances share T5's last bucket; see `relative_buckets`.
_MAX_DISTANCE = 128


def check_model(config: ModelConfig):
  """Raises `UserError` for a model setting that CTranslate2 does not support."""
  check_no_plugins('CTranslate2', config)
  check_supported(
    'CTranslate2',
    [
      (
        not config.query_key_norm,
        'model.query_key_norm=True',
        'it normalizes the queries of all heads as one vector',
      ),
      (
        config.head_key_dim == config.head_value_dim,
        f'model.key_dim={config.head_key_dim} with model.value_dim={config.head_value_dim}',
        'its heads have one width',
      ),
    ],
  )


def write_model(
  folder: str | os.PathLike,
  config: ModelConfig,
  params: Mapping[str, Any],
  pieces: Sequence[Sequence[str]],
  length: int = 0,
  quantization: str = 'float32',
):
  """Writes a model into a folder for `ctranslate2.Translator`.

  Args:
    folder: an existing folder.
    config: the settings of the model.
    params: its parameters, nested dicts as in a run.
    pieces: the pieces of the source and target vocabularies, by id.
    length: maximum number of source or target tokens, if more than 1,024.
    quantization: the type of the stored matrices.

  Raises:
    UserError: CTranslate2 does not support a setting or a parameter.
  """
  check_model(config)
  # Copies, because CTranslate2 quantizes in place. Parameters are removed once they are used.
  arrays = {path: np.array(leaf, np.float32) for path, leaf in flatten(params).items()}
  spec = _empty_spec(config)
  table = arrays.pop('target_embedding.table')
  spec.decoder.embeddings.weight = table
  if config.share_embeddings:
    spec.encoder.embeddings[0].weight = table.copy()
  else:
    spec.encoder.embeddings[0].weight = arrays.pop('source_embedding.table')
  positions = max(length, _MAX_INPUT_LENGTH)
  _stack(spec.encoder, arrays, config, 'encoder', positions)
  _stack(spec.decoder, arrays, config, 'decoder', positions)
  spec.decoder.projection.weight = table if config.tie_output else arrays.pop('output')
  if config.output_bias:
    spec.decoder.projection.bias = arrays.pop('output_bias')
  check_supported(
    'CTranslate2',
    [(not arrays, ', '.join(sorted(arrays)), 'it has no such parameters')],
  )
  _describe(spec, pieces)
  spec.validate()
  spec.optimize(quantization)
  spec.save(os.fspath(folder))


def _describe(spec: TransformerSpec, pieces: Sequence[Sequence[str]]):
  """Sets the vocabularies, and how CTranslate2 uses their special pieces."""
  source, target = pieces
  spec.register_source_vocabulary(list(source))
  spec.register_target_vocabulary(list(target))
  # Both vocabularies have the same special pieces.
  spec.config.unk_token = target[UNK_ID]
  spec.config.bos_token = target[BOS_ID]
  spec.config.eos_token = target[EOS_ID]
  spec.config.decoder_start_token = target[BOS_ID]
  spec.config.add_source_eos = True
  spec.config.layer_norm_epsilon = 1e-6


def _empty_spec(config: ModelConfig) -> TransformerSpec:
  """Returns the specification of a model without its weights."""
  width = config.head_key_dim
  layout = {
    'pre_norm': config.norm_position == 'pre',
    'rms_norm': config.rms_norm,
    'activation': _ACTIVATIONS[config.activation],
    'ffn_glu': config.activation == 'swiglu',
    'relative_attention_bias': config.positions == 'relative',
    'rotary_dim': width if config.positions == 'rotary' else None,
    'head_dim': width if width * config.num_heads != config.model_dim else None,
  }
  return TransformerSpec(
    TransformerEncoderSpec(config.num_layers, config.num_heads, **layout),
    TransformerDecoderSpec(config.decoder_depth, config.num_heads, **layout),
  )


def _stack(stack, arrays, config: ModelConfig, side: str, positions: int):
  """Sets the encoder or the decoder; its embeddings are set already.

  Args:
    stack: CTranslate2's specification of the encoder or decoder.
    arrays: the parameters by path; parameters are removed once they are used.
    config: the settings of the model.
    side: `encoder` or `decoder`.
    positions: the number of sinusoidal positions to store.
  """
  if config.positions == 'sinusoidal':
    table = sinusoidal_positions(positions, config.model_dim)
    stack.position_encodings.encodings = table
  elif config.positions == 'learned':
    language = 'source' if side == 'encoder' else 'target'
    stack.position_encodings.encodings = arrays.pop(f'{language}_position.table')
  if config.norm_position == 'pre':
    _norm(stack.layer_norm, arrays, f'{side}_norm')
  bias = arrays.pop(f'{side}_bias.table', None)
  for index, layer in enumerate(stack.layer):
    path = f'{side}_{index}'
    _attention(layer.self_attention, arrays, f'{path}.self_attention', config)
    if bias is not None:
      layer.self_attention.relative_attention_bias = bias.copy()
      layer.self_attention.relative_attention_max_distance = np.int32(_MAX_DISTANCE)
    if side == 'decoder':
      _attention(layer.attention, arrays, f'{path}.cross_attention', config)
    _feed_forward(layer.ffn, arrays, f'{path}.feed_forward')


def _feed_forward(spec, arrays, path: str):
  """Sets a feed-forward sublayer and its norm; only SwiGLU has a gate."""
  _norm(spec.layer_norm, arrays, f'{path}_residual.layer_norm')
  for part, name in _FEED_FORWARD.items():
    if f'{path}.{part}.kernel' in arrays:
      linear = getattr(spec, name)
      _linear(linear, arrays, path, [part])


def _attention(spec, arrays, path: str, config: ModelConfig):
  """Sets the projections of an attention sublayer and its norm.

  Projections with the same input form one matrix: queries, keys and values of self-attention; keys
  and values of cross-attention.
  """
  _norm(spec.layer_norm, arrays, f'{path}_residual.layer_norm')
  output = f'{path}.output.kernel'
  arrays[output] = arrays[output].reshape(-1, config.model_dim)
  if path.endswith('self_attention'):
    joined = [['query', 'key', 'value'], ['output']]
  else:
    joined = [['query'], ['key', 'value'], ['output']]
  for linear, parts in zip(spec.linear, joined, strict=True):
    _linear(linear, arrays, path, parts)


def _norm(spec, arrays, path: str):
  """Sets a layer norm."""
  spec.gamma = arrays.pop(f'{path}.scale')
  if f'{path}.bias' in arrays:  # RMS norm has no bias.
    spec.beta = arrays.pop(f'{path}.bias')


def _linear(spec, arrays, path: str, parts: Sequence[str]):
  """Concatenates the matrices and biases of `parts`.

  A part has a matrix [inputs, outputs …] and optionally a bias [outputs …]. CTranslate2 has one
  matrix [all outputs, inputs] and one bias [all outputs].
  """
  kernels = []
  biases = []
  for part in parts:
    kernel = arrays.pop(f'{path}.{part}.kernel')
    kernels.append(kernel.reshape(len(kernel), -1).T)
    if f'{path}.{part}.bias' in arrays:
      bias = arrays.pop(f'{path}.{part}.bias')
      biases.append(bias.reshape(-1))
  spec.weight = np.concatenate(kernels)
  if biases:
    spec.bias = np.concatenate(biases)
