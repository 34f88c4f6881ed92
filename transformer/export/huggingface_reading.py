"""Reads a MarianMT folder of Hugging Face's `transformers` that this project can hold.

Such a folder is an export of this project, also after further training there. The vocabularies of
published models lack the bytes, and normalise text: see docs/vocabulary.md.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.config import Config
from transformer.data.config import SHARED_VOCABULARY, DataConfig
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError
from transformer.export import tensor_file
from transformer.export.huggingface_format import (
  ACTIVATIONS,
  SPECIAL,
  WEIGHTS,
  dim_order,
  layout,
)
from transformer.inference.config import DecodeConfig
from transformer.model.config import ModelConfig
from transformer.training.config import TrainConfig

_FIXED = {'model_type': 'marian', 'scale_embedding': True, 'normalize_embedding': False,
          'static_position_embeddings': True, **SPECIAL}
_USED = {'activation_function', 'd_model', 'dropout', 'attention_dropout', 'activation_dropout',
         'share_encoder_decoder_embeddings', 'tie_word_embeddings',
         *(f'{side}_{name}' for side in ('encoder', 'decoder')
           for name in ('layers', 'ffn_dim', 'attention_heads'))}


class Imported(NamedTuple):
  """What a folder holds.

  Attributes:
    config: settings that describe the model; those of the text are defaults.
    vocabulary: its vocabulary.
    params: nested dicts of float32 arrays.
  """

  config: Config
  vocabulary: Vocabulary
  params: dict[str, Any]


def read_model(folder: Path) -> Imported:
  """Reads a folder.

  Raises:
    UserError: a file is missing or damaged, or this project has no such model; the message names
      the setting.
  """
  about = _read_json(folder / 'config.json')
  missing = _USED - about.keys()
  if missing:
    raise UserError(f'{folder}/config.json should describe a MarianMT model; it lacks '
                    f'{", ".join(sorted(missing))}')
  for name, wanted in _FIXED.items():
    if about.get(name) != wanted:
      raise UserError(f'{folder}/config.json has {name}={about.get(name)}, and this project can '
                      f'hold only {wanted}')
  if not (folder / WEIGHTS).exists():
    raise UserError(f'{folder} should hold its weights as {WEIGHTS}; it holds '
                    f'{", ".join(sorted(path.name for path in folder.iterdir()))}; save it again '
                    f'with save_pretrained, which writes that file')
  file, = SHARED_VOCABULARY
  if not (folder / file).exists():
    raise UserError(f'{folder} should hold {file}, the SentencePiece model that an export of this '
                    f'project has; copy it from there. Models with another vocabulary cannot be '
                    f'read')
  vocabulary = Vocabulary.load(folder / file)
  tensors = {name: np.asarray(each, np.float32)
             for name, each in tensor_file.read(folder / WEIGHTS)[1].items()}
  model = _model_config(folder, about, tensors)
  if np.any(tensors.get('final_logits_bias', 0)):
    raise UserError(f'{folder} has a bias of the logits, final_logits_bias, and this project has '
                    f'none; only models whose bias is zero can be read')
  generation = (_read_json(folder / 'generation_config.json')
                if (folder / 'generation_config.json').exists() else {})
  limit = _read_json(folder / 'tokenizer_config.json').get('model_max_length')
  data = DataConfig(vocabulary_size=vocabulary.size, **(
      {'max_length': limit} if isinstance(limit, int) and 2 <= limit <= 10_000 else {}))
  rows = max(TrainConfig().tokens_per_batch // data.max_length, 1)
  config = Config(data, model, train=TrainConfig(tokens_per_batch=rows * data.max_length),
                  decode=DecodeConfig(beam_size=generation.get('num_beams', 4)))
  return Imported(config, vocabulary, _params(folder, model, vocabulary.size, tensors))


def _model_config(folder: Path, about: Mapping[str, Any],
                  tensors: Mapping[str, np.ndarray]) -> ModelConfig:
  """Returns the shape of a model; biases and tables are as the tensors say."""
  for name in ('ffn_dim', 'attention_heads'):
    if about[f'encoder_{name}'] != about[f'decoder_{name}']:
      raise UserError(f'{folder}/config.json has encoder_{name}={about[f"encoder_{name}"]} and '
                      f'decoder_{name}={about[f"decoder_{name}"]}; this project has one for both')
  names = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
  if about['activation_function'] not in names:
    raise UserError(f'{folder}/config.json has activation_function={about["activation_function"]}; '
                    f'this project can hold {" or ".join(names)}')
  biased = {name.split('.')[-2] for name, each in tensors.items()
            if name.endswith('_proj.bias') and each.any()}
  tables = [tensors.get(f'model.{side}.embed_tokens.weight') for side in ('encoder', 'decoder')]
  shared = about['share_encoder_decoder_embeddings'] or np.array_equal(*tables)
  return ModelConfig(
      num_layers=about['encoder_layers'], encoder_layers=about['encoder_layers'],
      decoder_layers=about['decoder_layers'], model_dim=about['d_model'],
      ff_dim=about['encoder_ffn_dim'], num_heads=about['encoder_attention_heads'],
      activation=names[about['activation_function']], dropout=about['dropout'],
      attention_dropout=about['attention_dropout'], activation_dropout=about['activation_dropout'],
      attention_bias='all' if biased - {'out_proj'} else 'output' if biased else 'none',
      share_embeddings=shared, tie_output=about['tie_word_embeddings'])


def _params(folder: Path, config: ModelConfig, size: int,
            tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns the parameters, each the reverse of what an export does."""
  parts = {'none': (), 'output': ('output',), 'all': ('query', 'key', 'value', 'output')}
  back = np.argsort(dim_order(config.model_dim))
  params: dict[str, Any] = {}
  for each in layout(config, size):
    *path, name = each.path.split('.')
    if name == 'bias' and path[1].endswith('attention') and (
        path[-1] not in parts[config.attention_bias]):
      continue
    if each.name not in tensors:
      raise UserError(f'{folder}/{WEIGHTS} should hold {each.name}; it does not; restore it from a '
                      f'copy')
    array = tensors[each.name] / np.float32(each.factor)
    if name == 'kernel':
      array = array.T
    if array.size != np.prod(each.shape):
      raise UserError(f'{each.name} in {folder}/{WEIGHTS} should have {np.prod(each.shape)} '
                      f'numbers, as config.json and the vocabulary say; it has {array.size}')
    array = array.reshape(each.shape)
    if each.dims is not None:
      array = array.take(back, each.dims)
    inner = params
    for part in path:
      inner = inner.setdefault(part, {})
    inner[name] = array
  return params


def _read_json(path: Path) -> dict[str, Any]:
  try:
    found = json.loads(path.read_text('utf-8'))
  except OSError as error:
    raise UserError(f'{path} cannot be read: {error.strerror}; --weights must name a file of '
                    f'--format=safetensors, or a MarianMT folder') from error
  except ValueError as error:
    raise UserError(f'{path} should hold JSON; it does not; restore it from a copy') from error
  if not isinstance(found, dict):
    raise UserError(f'{path} should hold a JSON object; it does not; restore it from a copy')
  return found
