"""Writes a model as a folder of Hugging Face's `transformers`, with its tokenizer.

MarianMT is the published model. Pegasus is the same with norms before the sublayers and at the end
of each stack, and with one table for source, target and output. These are the differences:

                         MarianMT, Pegasus               this project
  order of the sinusoids all sines, then all cosines     interleaved
  epsilon of layer norms 10⁻⁵                            10⁻⁶
  biases of attention    everywhere                      model.attention_bias
  bias of the logits     a vector                        model.output_bias

huggingface_layout.py makes up for the first two. Missing biases are zero.

The searches differ; W is the beam size and n the length:

                       generate                            this project
  longest translation  max_length, the begin token and     the source's tokens and
                       data.max_length + decode.           decode.max_extra_length more
                       max_extra_length tokens
  length penalty       n^α, n with the end token           ((5 + n) / 6)^α, n with the end token
  end of beam search   W hypotheses have finished          the same, or no live one can
                                                           overtake
  at the length limit  live hypotheses compete with        only finished ones count if there
                       finished ones                       are any
  longest source       the positions, 1,024 or more        data.max_length
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer import files
from transformer.config import Config
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert import huggingface_tokenizer, marian_vocabulary, tensor_file
from transformer.tools.convert.huggingface_layout import dim_order, layout, shares_all
from transformer.tools.convert.used_parameters import UsedParameters
from transformer.tools.convert.vocabulary_pieces import has_merges_alone

WEIGHTS = 'model.safetensors'
_FEWEST_POSITIONS = 1024  # The library's default.
ACTIVATIONS = {'relu': 'relu', 'gelu': 'gelu', 'silu': 'silu'}

# The library's models by where their norms stand, as `model_type` and as people write them.
MODELS = {'post': ('marian', 'MarianMT'), 'pre': ('pegasus', 'Pegasus')}


def check_model(config: ModelConfig):
  """Checks that MarianMT, or Pegasus with `norm=pre`, can represent a model.

  Raises:
    UserError: the library has no such model; the message names the setting.
  """
  width, one_table = config.model_dim / config.num_heads, config.norm == 'pre'
  for fits, setting, reason in (
      (config.share_embeddings or not one_table, 'share_embeddings=False', 'it has one table'),
      (config.tie_output or not one_table, 'tie_output=False', 'it has one table'),
      (not config.rms_norm, 'rms_norm=True', 'it has layer norm'),
      (not config.query_key_norm, 'query_key_norm=True', 'it has no norm of queries and keys'),
      (config.positions == 'sinusoidal', f'positions={config.positions}', 'it has sinusoids'),
      (config.activation in ACTIVATIONS, f'activation={config.activation}',
       'its feed-forward sublayer has no gate'),
      (config.head_key_dim == width, f'key_dim={config.head_key_dim}',
       'its heads have model_dim / num_heads dims'),
      (config.head_value_dim == width, f'value_dim={config.head_value_dim}',
       'its heads have model_dim / num_heads dims')):
    if not fits:
      raise UserError(f'{MODELS[config.norm][1]} cannot hold model.{setting}: {reason}; export to '
                      f'--format=safetensors')


def write_model(folder: str | os.PathLike, config: Config, params: Mapping[str, Any],
                vocabulary: RunVocabulary):
  """Writes a model that `AutoModelForSeq2SeqLM` and `AutoTokenizer` load.

  Args:
    folder: an existing folder.
    config: the settings of the run.
    params: the model's parameters, float32, in this project's nested dicts.
    vocabulary: the vocabulary, or one for each language.

  Raises:
    UserError: the library cannot represent the model or a parameter, or a file cannot be written.
  """
  check_model(config.model)
  folder = Path(folder)
  sizes = vocabulary.source.size, vocabulary.target.size
  tensors = _tensors(config.model, UsedParameters(params, MODELS[config.model.norm][1]), *sizes)
  if config.model.norm == 'pre':  # A Pegasus is saved with its positions, and MarianMT without.
    table = sinusoidal_positions(_positions(config), config.model.model_dim)
    table = np.asarray(table, np.float32)[:, dim_order(config.model.model_dim)]
    tensors |= {f'model.{side}.embed_positions.weight': table for side in ('encoder', 'decoder')}
  tensor_file.write(folder / WEIGHTS, tensors, {'format': 'pt'})
  for name, content in (
      ('config.json', _model_config(config, *sizes)),
      ('generation_config.json', _generation_config(config))):
    files.write_json(folder / name, content)
  if is_shared(vocabulary) and has_merges_alone(vocabulary.target):
    huggingface_tokenizer.write(folder, vocabulary.target, config.data.max_length)
  else:
    marian_vocabulary.write(folder, vocabulary, config.data)


def _model_config(config: Config, source_size: int, size: int) -> dict[str, Any]:
  model = config.model
  sides = {f'{side}_{name}': value
           for side, depth in (('encoder', model.encoder_depth), ('decoder', model.decoder_depth))
           for name, value in (('layers', depth), ('attention_heads', model.num_heads),
                               ('ffn_dim', model.ff_dim), ('layerdrop', model.layer_drop))}
  marian = {'architectures': ['MarianMTModel'], 'decoder_vocab_size': size,
            'normalize_embedding': False, 'static_position_embeddings': True,
            'share_encoder_decoder_embeddings': shares_all(model)}
  pegasus = {'architectures': ['PegasusForConditionalGeneration']}
  return {
      **(marian if model.norm == 'post' else pegasus),
      'model_type': MODELS[model.norm][0], 'dtype': 'float32', 'is_encoder_decoder': True,
      'vocab_size': source_size, 'd_model': model.model_dim,
      'num_hidden_layers': model.encoder_depth, **sides,
      'activation_function': ACTIVATIONS[model.activation], 'dropout': model.dropout,
      'attention_dropout': model.attention_dropout,
      'activation_dropout': model.activation_dropout,
      'scale_embedding': True,
      'max_position_embeddings': _positions(config),
      'tie_word_embeddings': model.tie_output,
      'forced_eos_token_id': None,  # By default, it ends translations at the limit by token 0.
      **SPECIAL}


def _generation_config(config: Config) -> dict[str, Any]:
  decode = config.decode
  if decode.sample:
    how = {'num_beams': 1, 'do_sample': True, 'temperature': decode.temperature,
           'top_k': decode.top_k, 'top_p': decode.top_p}
  else:
    how = {'num_beams': decode.beam_size}
    if decode.beam_size > 1:
      how |= {'early_stopping': True, 'length_penalty': decode.alpha}
  return {**SPECIAL, 'max_length': 1 + _reach(config), **how}


SPECIAL = {'pad_token_id': PAD_ID, 'bos_token_id': BOS_ID, 'eos_token_id': EOS_ID,
            'decoder_start_token_id': BOS_ID}


def _positions(config: Config) -> int:
  """Returns the number of positions of the library's model."""
  return max(_reach(config), _FEWEST_POSITIONS)


def _reach(config: Config) -> int:
  """Returns the length of the longest translation, in tokens."""
  return config.data.max_length + config.decode.max_extra_length


def _tensors(config: ModelConfig, given: UsedParameters, source_size: int,
             size: int) -> dict[str, np.ndarray]:
  """Returns the library's tensors by name, for that many source and target tokens."""
  bias_N = given['output_bias'] if 'output_bias' in given else np.zeros(size)
  tensors = {'final_logits_bias': np.asarray(bias_N, np.float32).reshape(1, size)}
  for each in layout(config, source_size, size):
    lacks_bias = each.path.endswith('.bias') and each.path not in given
    array = np.asarray(np.zeros(each.shape) if lacks_bias else given[each.path], np.float32)
    if each.dims is not None:
      array = array.take(dim_order(config.model_dim), each.dims)
    if each.path.endswith('.bias'):
      array = array.reshape(-1)
    elif each.path.endswith('.kernel'):
      ends = (config.model_dim, -1) if each.dims == 0 else (-1, config.model_dim)
      array = array.reshape(ends).T
    tensors[each.name] = array * np.float32(each.factor)
  given.check_all_used()
  return tensors
