"""Reads a folder of Hugging Face's `transformers`: an export, or a published MarianMT model.

A folder with a vocabulary of this project is one of its exports, possibly fine-tuned with
`transformers`. Other folders have the vocabularies of `marian_vocabulary.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.tools.convert import (
  huggingface_params,
  huggingface_tensors,
  marian_vocabulary,
)
from transformer.tools.convert.huggingface_format import ACTIVATIONS, MODELS, SPECIAL
from transformer.tools.convert.marian_vocabulary import JsonFile
from transformer.training.config import TrainConfig

_NORMS = {kind: norm for norm, (kind, _) in MODELS.items()}
_ACTIVATIONS = {name: name for name in ACTIVATIONS} | {'swish': 'silu'}
# Settings that only older folders have, and missing settings, with the library's defaults.
_OF_MARIAN = {
  'normalize_embedding': False,
  'normalize_before': False,
  'add_final_layer_norm': False,
  'static_position_embeddings': True,
}
_DEFAULTS = {
  **_OF_MARIAN,
  'share_encoder_decoder_embeddings': True,
  'tie_word_embeddings': True,
  'scale_embedding': False,
}
_LONGEST = 512  # The library's default maximum source length.


class Imported(NamedTuple):
  """The content of a folder.

  Attributes:
    config: the model's settings; settings of the data are defaults.
    vocabulary: the vocabulary or vocabularies.
    params: the parameters, by path.
  """

  config: Config
  vocabulary: RunVocabulary
  params: dict[str, Any]


def read_model(folder: Path) -> Imported:
  """Reads a folder; raises `UserError` if it is corrupt, or its model is not supported."""
  hf_config = JsonFile(folder / 'config.json')
  for name, value in _DEFAULTS.items():
    hf_config.setdefault(name, value)
  _check_settings(folder, hf_config)
  tokenizer = JsonFile(folder / 'tokenizer_config.json')
  vocabularies = marian_vocabulary.read(
    folder, hf_config, bool(tokenizer.get('separate_vocabs'))
  )
  weights = huggingface_tensors.read_weights(folder)
  huggingface_params.check_positions(folder, hf_config['d_model'], weights)
  tensors = {name: np.asarray(tensor, np.float32) for name, tensor in weights.items()}
  model = _model_settings(hf_config, tensors)
  params = huggingface_params.read_params(
    folder, hf_config, ModelConfig(**model), tensors
  )
  generation = hf_config
  path = folder / 'generation_config.json'
  if path.exists():
    generation = hf_config | JsonFile(path)
  params |= huggingface_params.logits_bias(
    folder, generation, vocabularies.target_N, tensors
  )
  model['output_bias'] = 'output_bias' in params
  model['share_embeddings'] = huggingface_params.reorder_rows(params, vocabularies)
  data = _data_settings(vocabularies.vocabulary, tokenizer)
  length = DataConfig(**data).max_length
  sentences = max(TrainConfig().tokens_per_batch // length, 1)
  config = Config.from_dict(
    {
      'data': data,
      'model': model,
      'decode': {'beam_size': generation.get('num_beams') or DecodeConfig.beam_size},
      'train': {'tokens_per_batch': sentences * length},
    }
  )
  return Imported(config, vocabularies.vocabulary, params)


def _check_settings(folder: Path, hf_config: Mapping[str, Any]):
  """Raises `UserError` for a model that is not supported."""
  allowed = {
    'model_type': tuple(_NORMS),
    'scale_embedding': (True,),
    'activation_function': tuple(_ACTIVATIONS),
    'decoder_ffn_dim': (hf_config['encoder_ffn_dim'],),
    'decoder_attention_heads': (hf_config['encoder_attention_heads'],),
  }
  fixed = dict(_OF_MARIAN)
  if hf_config.get('model_type') == 'pegasus':
    fixed = {'tie_word_embeddings': True}
  if marian_vocabulary.is_native(folder):
    fixed |= SPECIAL
  allowed |= {name: (value,) for name, value in fixed.items()}
  for name, values in allowed.items():
    if hf_config[name] not in values:
      raise UserError(
        f'{folder}/config.json has {name}={hf_config[name]}, and this project supports only '
        f'{" or ".join(map(str, values))}'
      )


def _model_settings(
  hf_config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the model's settings; biases and shared tables are inferred from the tensors."""
  biased = {
    name.split('.')[-2]
    for name, tensor in tensors.items()
    if name.endswith('_proj.bias') and tensor.any()
  }
  attention_bias = 'none'
  if biased:
    attention_bias = 'output' if biased == {'out_proj'} else 'all'
  source = tensors.get('model.encoder.embed_tokens.weight')
  target = tensors.get('model.decoder.embed_tokens.weight')
  one_table = source is not None and np.array_equal(source, target)
  return {
    'num_layers': hf_config['encoder_layers'],
    'decoder_layers': hf_config['decoder_layers'],
    'model_dim': hf_config['d_model'],
    'ff_dim': hf_config['encoder_ffn_dim'],
    'num_heads': hf_config['encoder_attention_heads'],
    'activation': _ACTIVATIONS[hf_config['activation_function']],
    'norm_position': _NORMS[hf_config['model_type']],
    'attention_bias': attention_bias,
    'share_embeddings': hf_config['share_encoder_decoder_embeddings'] or one_table,
    'tie_output': hf_config['tie_word_embeddings'],
    'dropout': hf_config['dropout'],
    'attention_dropout': hf_config['attention_dropout'],
    'activation_dropout': hf_config['activation_dropout'],
  }


def _data_settings(
  vocabulary: RunVocabulary, tokenizer: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the data settings from a folder; other keys have the values of `configs/text.py`."""
  settings: dict[str, Any] = {
    'source': 'text',
    'dir': 'data/text',
    'train': ('train',),
    'valid': 'valid',
    'test': 'test',
    'vocabulary_size': vocabulary.target.size,
  }
  if not is_shared(vocabulary):
    settings |= {
      'shared_vocabulary': False,
      'source_vocabulary_size': vocabulary.source.size,
    }
  limit = tokenizer.get('model_max_length') or _LONGEST
  if limit <= 10_000:  # The library writes 10³⁰ for no limit.
    settings['max_length'] = limit
  source = tokenizer.get('source_lang')
  target = tokenizer.get('target_lang')
  if source and target and source != target:
    settings |= {'source_language': source, 'target_language': target}
  return settings
