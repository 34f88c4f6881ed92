"""Writes a model as a folder for Hugging Face's `transformers`, with its tokenizer.

MarianMT is the post-norm model. Pegasus is pre-norm, with a final norm in encoder and decoder, and
one table for source, target and output. docs/export.md explains the differences of the models and
their search; huggingface_tensors.py compensates for sinusoidal positions and norms.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer import files
from transformer.config import Config, flatten
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.model.config import ModelConfig
from transformer.tools.convert import marian_vocabulary
from transformer.tools.convert.huggingface_tensors import (
  POSITIONS,
  WEIGHTS,
  layout,
  sinusoids,
)
from transformer.tools.convert.safetensors_format import write_tensors
from transformer.tools.convert.unsupported import check_no_plugins, check_supported

_FEWEST_POSITIONS = 1024  # The library's default.
ACTIVATIONS = ('relu', 'gelu', 'silu')
# The library's models by position of their norms, as `model_type` and as a human-readable name.
MODELS = {'post': ('marian', 'MarianMT'), 'pre': ('pegasus', 'Pegasus')}
SPECIAL = {
  'pad_token_id': PAD_ID,
  'bos_token_id': BOS_ID,
  'eos_token_id': EOS_ID,
  'decoder_start_token_id': BOS_ID,
}


def check_model(config: ModelConfig):
  """Raises `UserError` for a setting that MarianMT does not allow; with pre-norm, Pegasus."""
  name = MODELS[config.norm_position][1]
  check_no_plugins(name, config)
  many_tables = config.norm_position == 'post'
  width = config.model_dim / config.num_heads
  width_reason = 'its heads have model_dim / num_heads dims'
  check_supported(
    name,
    [
      (
        many_tables or config.share_embeddings,
        'model.share_embeddings=False',
        'it has one table',
      ),
      (many_tables or config.tie_output, 'model.tie_output=False', 'it has one table'),
      (not config.rms_norm, 'model.rms_norm=True', 'it has layer norm'),
      (
        not config.query_key_norm,
        'model.query_key_norm=True',
        'it norms no queries and keys',
      ),
      (
        config.positions == 'sinusoidal',
        f'model.positions={config.positions}',
        'it has sinusoids',
      ),
      (
        config.activation in ACTIVATIONS,
        f'model.activation={config.activation}',
        'it has no gate',
      ),
      (
        config.head_key_dim == width,
        f'model.key_dim={config.head_key_dim}',
        width_reason,
      ),
      (
        config.head_value_dim == width,
        f'model.value_dim={config.head_value_dim}',
        width_reason,
      ),
    ],
  )


def write_model(
  folder: str | os.PathLike,
  config: Config,
  params: Mapping[str, Any],
  vocabulary: RunVocabulary,
):
  """Writes a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.

  Raises `UserError` for settings that the library's models do not support.
  """
  check_model(config.model)
  folder = Path(folder)
  model = config.model
  data = config.data
  decode = config.decode
  sizes = (vocabulary.source.size, vocabulary.target.size)
  longest = data.max_length + decode.max_extra_length
  positions = max(longest, _FEWEST_POSITIONS)
  tensors = _tensors(model, flatten(params), *sizes)
  # A Pegasus is saved with its positions, MarianMT without.
  if model.norm_position == 'pre':
    tensors |= dict.fromkeys(POSITIONS, sinusoids(positions, model.model_dim))
  write_tensors(folder / WEIGHTS, tensors, {'format': 'pt'})
  files.write_json(folder / 'config.json', _model_config(model, *sizes, positions))
  search = {**SPECIAL, 'max_length': 1 + longest, 'num_beams': decode.beam_size}
  if decode.beam_size > 1:
    search |= {'early_stopping': True, 'length_penalty': decode.alpha}
  files.write_json(folder / 'generation_config.json', search)
  marian_vocabulary.write(folder, vocabulary, data)


def _model_config(
  model: ModelConfig, source_size: int, size: int, positions: int
) -> dict[str, Any]:
  """Returns the content of config.json, the settings of the library's model."""
  if model.norm_position == 'pre':
    kind = {'architectures': ['PegasusForConditionalGeneration']}
  else:
    kind = {
      'architectures': ['MarianMTModel'],
      'decoder_vocab_size': size,
      'normalize_embedding': False,
      'static_position_embeddings': True,
      'share_encoder_decoder_embeddings': model.share_embeddings and model.tie_output,
    }
  return {
    **kind,
    'model_type': MODELS[model.norm_position][0],
    'dtype': 'float32',
    'is_encoder_decoder': True,
    'vocab_size': source_size,
    'd_model': model.model_dim,
    'num_hidden_layers': model.num_layers,
    'encoder_layers': model.num_layers,
    'encoder_attention_heads': model.num_heads,
    'encoder_ffn_dim': model.ff_dim,
    'encoder_layerdrop': 0.0,
    'decoder_layers': model.decoder_depth,
    'decoder_attention_heads': model.num_heads,
    'decoder_ffn_dim': model.ff_dim,
    'decoder_layerdrop': 0.0,
    'activation_function': model.activation,
    'dropout': model.dropout,
    'attention_dropout': model.attention_dropout,
    'activation_dropout': model.activation_dropout,
    'scale_embedding': True,
    'max_position_embeddings': positions,
    'tie_word_embeddings': model.tie_output,
    'forced_eos_token_id': None,  # The default forces token 0 at the length limit.
    **SPECIAL,
  }


def _tensors(
  config: ModelConfig, params: dict[str, Any], source_size: int, size: int
) -> dict[str, np.ndarray]:
  """Returns the library's tensors by name, given parameters by path."""
  bias_N = np.asarray(params.pop('output_bias', np.zeros(size)), np.float32)
  places = list(layout(config, source_size, size))
  unknown = sorted(params.keys() - {place.path for place in places})
  check_supported(
    MODELS[config.norm_position][1],
    [(not unknown, ', '.join(unknown), 'it has no such parameters')],
  )
  tensors = {'final_logits_bias': bias_N.reshape(1, size)}
  for place in places:
    array = params.get(place.path)
    if array is None and place.path.endswith('.bias'):
      array = np.zeros(place.shape)
    tensors[place.name] = place.to_huggingface(np.asarray(array, np.float32))
  return tensors
