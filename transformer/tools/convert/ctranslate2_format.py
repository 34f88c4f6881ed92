"""Writes a model in the format of CTranslate2; only this file imports that package.

CTranslate2 takes and returns pieces of the run's vocabulary: SentencePiece models. It adds the
end token of a source itself. Its probabilities equal this project's except for rounding. Both
begin a translation with `<s>`. The searches differ; W is the beam size and n the length:

                       CTranslate2                         this project
  longest translation  max_decoding_length, 256 tokens     the source's tokens and
                                                           decode.max_extra_length more
  empty translation    only with min_decoding_length=0     allowed
  length penalty       n^α, n without the end token        ((5 + n) / 6)^α, n with the end token
  end of beam search   α = 0: the best hypothesis of a     W hypotheses have finished, or no
                       step finishes; α > 0: W have        live one can overtake
                       finished
  at the length limit  live hypotheses compete with        only finished ones count if there
                       finished ones                       are any
  longest source       max_input_length, 1,024 tokens      data.max_length

The unknown token never occurs, because the vocabulary spells unknown characters in bytes.
transformer/data/vocabulary/vocabulary.py escapes the rare characters U+2581 and U+2585 before it
encodes text. SentencePiece alone does not escape them.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
from ctranslate2.specs.common_spec import Activation

from transformer.data.batch import BOS_ID, EOS_ID, UNK_ID
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert.used_parameters import UsedParameters

# CTranslate2's own types except bfloat16, which it writes only with PyTorch.
QUANTIZATIONS = ('float32', 'float16', 'int16', 'int8', 'int8_float32', 'int8_float16')
_MAX_INPUT_LENGTH = 1024  # CTranslate2's default.
_ACTIVATIONS = {'relu': Activation.RELU, 'gelu': Activation.GELU, 'silu': Activation.SWISH,
                'swiglu': Activation.SWISH}
_MAX_DISTANCE = 128  # All larger distances share T5's last bucket; see `relative_buckets`.


def check_quantization(quantization: str):
  """Checks that a type is one of `QUANTIZATIONS`.

  Raises:
    UserError: there is no such type.
  """
  if quantization not in QUANTIZATIONS:
    raise UserError(f'--quantization must be one of {", ".join(QUANTIZATIONS)}; '
                    f'got {quantization!r}')


def check_model(config: ModelConfig):
  """Checks that CTranslate2 can represent a model.

  Raises:
    UserError: CTranslate2 has no such model; the message names the setting.
  """
  if config.query_key_norm and config.num_heads > 1:
    raise UserError('CTranslate2 cannot hold model.query_key_norm=True: in attention to the source '
                    'it normalises the queries of all heads as one vector; export to '
                    '--format=safetensors')
  if config.query_key_norm and config.head_key_dim < config.head_value_dim:
    raise UserError(f'CTranslate2 cannot hold model.query_key_norm=True with keys narrower than '
                    f'values, {config.head_key_dim} and {config.head_value_dim}: it normalises the '
                    f'padding, too; export to --format=safetensors')


def write_model(folder: str | os.PathLike, config: ModelConfig, params: Mapping[str, Any],
                pieces: tuple[Sequence[str], Sequence[str]], length: int = 0,
                quantization: str = 'float32'):
  """Writes a model that `ctranslate2.Translator` loads.

  Args:
    folder: an existing folder.
    config: the model's shape.
    params: the model's parameters, float32, in this project's nested dicts.
    pieces: the pieces of the source's and of the target's vocabulary, by id.
    length: the length of the longest source or target, in tokens; it counts only if it is above
      CTranslate2's default of 1,024.
    quantization: the type of the stored matrices, one of `QUANTIZATIONS`.

  Raises:
    UserError: CTranslate2 cannot represent the model or a parameter, or has no such type.
  """
  check_quantization(quantization)
  check_model(config)
  given = UsedParameters(params, 'CTranslate2')
  relative = config.positions == 'relative'
  width = max(config.head_key_dim, config.head_value_dim)
  layout = {
      'pre_norm': config.norm == 'pre', 'rms_norm': config.rms_norm,
      'activation': _ACTIVATIONS[config.activation], 'ffn_glu': config.activation == 'swiglu',
      'relative_attention_bias': relative, 'qk_norm': config.query_key_norm,
      'rotary_dim': config.head_key_dim if config.positions == 'rotary' else None,
      'head_dim': width if width * config.num_heads != config.model_dim else None}
  spec = TransformerSpec(TransformerEncoderSpec(config.encoder_depth, config.num_heads, **layout),
                         TransformerDecoderSpec(config.decoder_depth, config.num_heads, **layout))
  sides = (('encoder', 'source', spec.encoder, spec.encoder.embeddings[0]),
           ('decoder', 'target', spec.decoder, spec.decoder.embeddings))
  for side, language, stack, embeddings in sides:
    table = 'target' if config.share_embeddings else language
    embeddings.weight = _array(given[f'{table}_embedding.table'])
    if config.positions == 'sinusoidal':
      stack.position_encodings.encodings = sinusoidal_positions(
          max(length, _MAX_INPUT_LENGTH), config.model_dim)
    elif config.positions == 'learned':
      stack.position_encodings.encodings = _array(given[f'{language}_position.table'])
    if config.norm == 'pre':
      _norm(stack.layer_norm, given, f'{side}_norm')
    for index, layer in enumerate(stack.layer):
      path = f'{side}_{index}'
      _attention(layer.self_attention, given, f'{path}.self_attention', config)
      if relative:
        layer.self_attention.relative_attention_bias = _array(given[f'{side}_bias.table'])
        layer.self_attention.relative_attention_max_distance = np.int32(_MAX_DISTANCE)
      if side == 'decoder':
        _attention(layer.attention, given, f'{path}.cross_attention', config)
      _feed_forward(layer.ffn, given, f'{path}.feed_forward')
  spec.decoder.projection.weight = (spec.decoder.embeddings.weight if config.tie_output
                                    else _array(given['output']))
  if config.output_bias:
    spec.decoder.projection.bias = _array(given['output_bias'])
  given.check_all_used()
  source, target = map(list, pieces)
  spec.register_source_vocabulary(source)
  spec.register_target_vocabulary(target)
  # Both vocabularies spell these in the same way.
  spec.config.unk_token, spec.config.bos_token = target[UNK_ID], target[BOS_ID]
  spec.config.eos_token, spec.config.decoder_start_token = target[EOS_ID], target[BOS_ID]
  spec.config.add_source_eos = True
  spec.config.layer_norm_epsilon = 1e-6
  spec.validate()
  spec.optimize(quantization)
  spec.save(os.fspath(folder))


def _array(leaf):
  return np.array(leaf, np.float32)  # A copy, because CTranslate2 quantises in place.


def _norm(spec, given, path):
  """Sets layer norm, or RMS norm, which has no bias."""
  spec.gamma = _array(given[f'{path}.scale'])
  if f'{path}.bias' in given:
    spec.beta = _array(given[f'{path}.bias'])


def _linear(spec, kernels, biases):
  """Joins matrices [inputs, outputs] into CTranslate2's single matrix [outputs, inputs]."""
  spec.weight = np.concatenate([kernel.T for kernel in kernels])
  if biases:
    spec.bias = np.concatenate(biases)


def _feed_forward(spec, given, path):
  _norm(spec.layer_norm, given, f'{path}_residual.layer_norm')
  parts = {'inner': spec.linear_0, 'outer': spec.linear_1}
  if f'{path}.gate.kernel' in given:
    parts['gate'] = spec.linear_0_noact
  for part, linear in parts.items():
    bias = f'{path}.{part}.bias'
    _linear(linear, [_array(given[f'{path}.{part}.kernel'])],
            [_array(given[bias])] if bias in given else [])


def _attention(spec, given, path, config):
  """Sets the projections of attention; those with the same input form one matrix.

  In CTranslate2 the queries, keys and values of a head have the same width. The narrower ones are
  padded with zeros, which change no product.
  """
  _norm(spec.layer_norm, given, f'{path}_residual.layer_norm')
  width = max(config.head_key_dim, config.head_value_dim)
  if width != config.head_key_dim:
    spec.queries_scale = np.float32(config.head_key_dim ** -0.5)
  if config.query_key_norm:
    _norm(spec.q_norm, given, f'{path}.query_norm')
    _norm(spec.k_norm, given, f'{path}.key_norm')

  def padded(name, axis):
    array = _array(given[f'{path}.{name}'])
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, width - array.shape[axis])
    return np.pad(array, missing)

  joined = (('query', 'key', 'value'),) if path.endswith('self_attention') else (
      ('query',), ('key', 'value'))
  for linear, parts in zip(spec.linear, joined, strict=False):
    _linear(linear,
            [padded(f'{part}.kernel', -1).reshape(config.model_dim, -1) for part in parts],
            [padded(f'{part}.bias', -1).reshape(-1) for part in parts
             if f'{path}.{part}.bias' in given])
  _linear(spec.linear[-1], [padded('output.kernel', 1).reshape(-1, config.model_dim)],
          [_array(given[f'{path}.output.bias'])] if f'{path}.output.bias' in given else [])
