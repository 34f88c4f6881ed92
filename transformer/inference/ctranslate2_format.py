"""A trained model as CTranslate2 reads it; the one file that knows its package.

CTranslate2 is given pieces and gives pieces: text is cut into them by the run's
vocabulary, a SentencePiece model, and the end token of a source is added by itself.
Its numbers are those of this project but for rounding. Its search is not the same:

- It begins with `<s>`, as this project does, which the model's config.json says.
- It stops after `max_decoding_length` tokens, 256 unless told, whatever the length of
  the source; here a translation has at most as many as its source and
  `decode.max_extra_length` more.
- It never begins with the end token unless `min_decoding_length=0` is asked for.
- Its length penalty is n^α, where n does not count the end token; here it is
  ((5 + n) / 6)^α, and n does. Only α = 0 is the same in both.
- With α = 0 its beam search is over when the best hypothesis of a step ends, and with
  another α when as many as there are beams have; here it is over as soon as either as
  many have ended or no live one can overtake. Of those that ended the best is the
  answer in both, but at the longest length it lets those that have not ended compete.
- It cuts sources after `max_input_length` tokens, 1,024 unless told; here it is
  `data.max_length`, beyond which a model has seen nothing in training.

The unknown token has no part in it, because the vocabulary spells what it has no piece
for in bytes. U+2581 and U+2585, which hardly any text holds, this project escapes before it
cuts text, as transformer/data/vocabulary.py says; SentencePiece alone does not.
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

# Those of CTranslate2 but for bfloat16, which it writes with PyTorch's help alone.
QUANTIZATIONS = ('float32', 'float16', 'int16', 'int8', 'int8_float32', 'int8_float16')
# What its `max_input_length` is unless told.
_LONGEST = 1024
_ACTIVATIONS = {'relu': Activation.RELU, 'gelu': Activation.GELU, 'swiglu': Activation.SWISH}
_EPSILON = 1e-6
# Distances from which on T5's buckets are alike; `ops.positions.relative_buckets` has it too.
_MAX_DISTANCE = 128


def check_quantization(quantization: str):
  """Refuses what is none of `QUANTIZATIONS`.

  Raises:
    UserError: names them.
  """
  if quantization not in QUANTIZATIONS:
    raise UserError(f'--quantization must be one of {", ".join(QUANTIZATIONS)}; '
                    f'got {quantization!r}')


def check_model(config: ModelConfig):
  """Refuses a model that CTranslate2 cannot hold.

  Raises:
    UserError: names what it cannot.
  """
  if config.query_key_norm and config.num_heads > 1:
    raise UserError('CTranslate2 cannot hold model.query_key_norm=True: in attention to the source '
                    'it normalises the queries of all heads as one vector; export to '
                    '--format=safetensors')


def write_model(folder: str | os.PathLike, config: ModelConfig, params: Mapping[str, Any],
                pieces: Sequence[str], length: int = 0, quantization: str = 'float32'):
  """Writes a model that `ctranslate2.Translator` loads.

  Args:
    folder: where to; it exists.
    config: the model's shape.
    params: its parameters, as this project names them.
    pieces: the vocabulary, by id.
    length: the longest sequence, source or target, if it is longer than what
      CTranslate2 takes unless told.
    quantization: one of `QUANTIZATIONS`; matrices are rounded by CTranslate2.

  Raises:
    UserError: the model is none that CTranslate2 holds.
  """
  check_quantization(quantization)
  check_model(config)
  relative = config.positions == 'relative'
  width = max(config.head_key_dim, config.head_value_dim)
  layout = {
      'pre_norm': config.norm == 'pre', 'rms_norm': config.rms_norm,
      'activation': _ACTIVATIONS[config.activation], 'ffn_glu': config.activation == 'swiglu',
      'relative_attention_bias': relative, 'qk_norm': config.query_key_norm,
      'rotary_dim': config.head_key_dim if config.positions == 'rotary' else None,
      'head_dim': width if width * config.num_heads != config.model_dim else None}
  spec = TransformerSpec(TransformerEncoderSpec(config.num_layers, config.num_heads, **layout),
                         TransformerDecoderSpec(config.num_layers, config.num_heads, **layout))
  sides = (('encoder', 'source', spec.encoder, spec.encoder.embeddings[0]),
           ('decoder', 'target', spec.decoder, spec.decoder.embeddings))
  for side, language, stack, embeddings in sides:
    table = 'target' if config.share_embeddings else language
    embeddings.weight = _array(params[f'{table}_embedding']['table'])
    if config.positions == 'sinusoidal':
      stack.position_encodings.encodings = sinusoidal_positions(max(length, _LONGEST),
                                                                config.model_dim)
    elif config.positions == 'learned':
      stack.position_encodings.encodings = _array(params[f'{language}_position']['table'])
    if config.norm == 'pre':
      _norm(stack.layer_norm, params[f'{side}_norm'])
    for index, layer in enumerate(stack.layer):
      given = params[f'{side}_{index}']
      _attention(layer.self_attention, given, 'self_attention', config)
      if relative:
        layer.self_attention.relative_attention_bias = _array(params[f'{side}_bias']['table'])
        layer.self_attention.relative_attention_max_distance = np.int32(_MAX_DISTANCE)
      if side == 'decoder':
        _attention(layer.attention, given, 'cross_attention', config)
      _feed_forward(layer.ffn, given)
  spec.decoder.projection.weight = (spec.decoder.embeddings.weight if config.tie_output
                                    else _array(params['output']))
  spec.register_source_vocabulary(list(pieces))
  spec.register_target_vocabulary(list(pieces))
  spec.config.unk_token, spec.config.bos_token = pieces[UNK_ID], pieces[BOS_ID]
  spec.config.eos_token, spec.config.decoder_start_token = pieces[EOS_ID], pieces[BOS_ID]
  spec.config.add_source_eos = True
  spec.config.layer_norm_epsilon = _EPSILON
  spec.validate()
  spec.optimize(quantization)
  spec.save(os.fspath(folder))


def _array(leaf):
  return np.array(leaf, np.float32)  # A copy, since CTranslate2 quantises in place.


def _norm(spec, given):
  """Layer norm, or RMS norm, which has no bias."""
  spec.gamma = _array(given['scale'])
  if 'bias' in given:
    spec.beta = _array(given['bias'])


def _linear(spec, kernels, biases):
  """Matrices [inputs, outputs], side by side, as CTranslate2 has them, [outputs, inputs]."""
  spec.weight = np.concatenate([kernel.T for kernel in kernels])
  if biases:
    spec.bias = np.concatenate(biases)


def _feed_forward(spec, given):
  _norm(spec.layer_norm, given['feed_forward_residual']['layer_norm'])
  own = given['feed_forward']
  parts = [(spec.linear_0, own['inner']), (spec.linear_1, own['outer'])]
  if 'gate' in own:
    parts.append((spec.linear_0_noact, own['gate']))
  for linear, part in parts:
    _linear(linear, [_array(part['kernel'])], [_array(part['bias'])] if 'bias' in part else [])


def _attention(spec, given, name, config):
  """Projections, those that share an input joined.

  Queries, keys and values of a head are of one width there. The narrower ones are
  filled up with zeros, which add nothing to any product.
  """
  own = given[name]
  _norm(spec.layer_norm, given[f'{name}_residual']['layer_norm'])
  width = max(config.head_key_dim, config.head_value_dim)
  if width != config.head_key_dim:
    spec.queries_scale = np.float32(config.head_key_dim ** -0.5)
  if config.query_key_norm:
    _norm(spec.q_norm, own['query_norm'])
    _norm(spec.k_norm, own['key_norm'])

  def filled(array, axis):
    array = _array(array)
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, width - array.shape[axis])
    return np.pad(array, missing)

  joined = (('query', 'key', 'value'),) if name == 'self_attention' else (
      ('query',), ('key', 'value'))
  for linear, parts in zip(spec.linear, joined, strict=False):
    _linear(linear,
            [filled(own[part]['kernel'], -1).reshape(config.model_dim, -1) for part in parts],
            [filled(own[part]['bias'], -1).reshape(-1) for part in parts])
  _linear(spec.linear[-1],
          [filled(own['output']['kernel'], 1).reshape(-1, config.model_dim)],
          [_array(own['output']['bias'])])
