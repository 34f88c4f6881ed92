"""Writes a model as a folder of Hugging Face's `transformers`, with its tokenizer.

MarianMT is the published model. Pegasus is the same with norms before the sublayers and at the end
of each stack, and with one table for source, target and output. These are the differences:

                         MarianMT, Pegasus               this project
  order of the sinusoids all sines, then all cosines     interleaved
  epsilon of layer norms 10⁻⁵                            10⁻⁶
  biases of attention    everywhere                      model.attention_bias
  bias of the logits     a vector                        model.output_bias

huggingface_tensors.py makes up for the first two. Missing biases are zero.

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
from transformer.config import Config, flatten
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.model.config import ModelConfig
from transformer.tools.convert import huggingface_tokenizer, marian_vocabulary
from transformer.tools.convert.huggingface_tensors import POSITIONS, WEIGHTS, layout, sinusoids
from transformer.tools.convert.refusals import refuse_parameters, refuse_settings
from transformer.tools.convert.safetensors_format import write_tensors
from transformer.tools.convert.vocabulary_pieces import has_merges_alone

_FEWEST_POSITIONS = 1024  # The library's default.
ACTIVATIONS = {'relu': 'relu', 'gelu': 'gelu', 'silu': 'silu'}
# The library's models by where their norms stand, as `model_type` and as people write them.
MODELS = {'post': ('marian', 'MarianMT'), 'pre': ('pegasus', 'Pegasus')}
SPECIAL = {'pad_token_id': PAD_ID, 'bos_token_id': BOS_ID, 'eos_token_id': EOS_ID,
           'decoder_start_token_id': BOS_ID}


def check_model(config: ModelConfig):
  """Refuses a setting that MarianMT, or Pegasus with `norm=pre`, cannot represent."""
  width, one_table = config.model_dim / config.num_heads, config.norm == 'pre'
  refuse_settings(MODELS[config.norm][1], (
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
       'its heads have model_dim / num_heads dims')))


def write_model(folder: str | os.PathLike, config: Config, params: Mapping[str, Any],
                vocabulary: RunVocabulary):
  """Writes a model of a run, which `AutoModelForSeq2SeqLM` and `AutoTokenizer` load, to a folder.

  Raises:
    UserError: the library cannot represent the model or a parameter.
  """
  check_model(config.model)
  folder, model, data = Path(folder), config.model, config.data
  sizes = vocabulary.source.size, vocabulary.target.size
  longest = data.max_length + config.decode.max_extra_length
  positions = max(longest, _FEWEST_POSITIONS)
  tensors = _tensors(model, flatten(params), *sizes)
  if model.norm == 'pre':  # A Pegasus is saved with its positions, and MarianMT without.
    tensors |= dict.fromkeys(POSITIONS, sinusoids(positions, model.model_dim))
  write_tensors(folder / WEIGHTS, tensors, {'format': 'pt'})
  files.write_json(folder / 'config.json', _model_config(model, *sizes, positions))
  files.write_json(folder / 'generation_config.json', _generation_config(config, longest))
  if is_shared(vocabulary) and has_merges_alone(vocabulary.target):
    huggingface_tokenizer.write(folder, vocabulary.target, data.max_length)
  else:
    marian_vocabulary.write(folder, vocabulary, data)


def _model_config(model: ModelConfig, source_size: int, size: int,
                  positions: int) -> dict[str, Any]:
  kind = {'architectures': ['PegasusForConditionalGeneration']} if model.norm == 'pre' else {
      'architectures': ['MarianMTModel'], 'decoder_vocab_size': size,
      'normalize_embedding': False, 'static_position_embeddings': True,
      'share_encoder_decoder_embeddings': model.share_embeddings and model.tie_output}
  sides = {f'{side}_{name}': value
           for side, depth in (('encoder', model.num_layers), ('decoder', model.decoder_depth))
           for name, value in (('layers', depth), ('attention_heads', model.num_heads),
                               ('ffn_dim', model.ff_dim), ('layerdrop', 0.0))}
  return {
      **kind, 'model_type': MODELS[model.norm][0], 'dtype': 'float32', 'is_encoder_decoder': True,
      'vocab_size': source_size, 'd_model': model.model_dim,
      'num_hidden_layers': model.num_layers, **sides,
      'activation_function': ACTIVATIONS[model.activation], 'dropout': model.dropout,
      'attention_dropout': model.attention_dropout,
      'activation_dropout': model.activation_dropout, 'scale_embedding': True,
      'max_position_embeddings': positions, 'tie_word_embeddings': model.tie_output,
      'forced_eos_token_id': None,  # By default, it ends translations at the limit by token 0.
      **SPECIAL}


def _generation_config(config: Config, longest: int) -> dict[str, Any]:
  decode = config.decode
  how = {'num_beams': decode.beam_size}
  if decode.beam_size > 1:
    how |= {'early_stopping': True, 'length_penalty': decode.alpha}
  return {**SPECIAL, 'max_length': 1 + longest, **how}


def _tensors(config: ModelConfig, params: dict[str, Any], source_size: int,
             size: int) -> dict[str, np.ndarray]:
  """Returns the library's tensors by name, of parameters by path."""
  bias_N = np.asarray(params.pop('output_bias', np.zeros(size)), np.float32)
  places = list(layout(config, source_size, size))
  refuse_parameters(MODELS[config.norm][1], params.keys() - {place.path for place in places})
  arrays = {place.path: np.zeros(place.shape) for place in places if place.path.endswith('.bias')}
  arrays |= params
  return {'final_logits_bias': bias_N.reshape(1, size), **{
      place.name: place.theirs(np.asarray(arrays[place.path], np.float32)) for place in places}}
