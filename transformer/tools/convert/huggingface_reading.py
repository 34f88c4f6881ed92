"""Reads a folder of Hugging Face's `transformers`: an export, or a published MarianMT model.

A folder with `vocabulary.model` is an export of this project, also after further training there.
Others have the vocabularies of `marian_vocabulary.py`. Their tables are put in the order of this
project's ids:

  piece                       its row of the tables  its bias of the logits
  padding, begin              that of the folder     −1000 if it may not be generated there
  a piece of vocab.json       its own                its own
  a byte or piece without row that of `<unk>`        that of `<unk>` − 40

So real pieces have the probabilities that they have in the library, but for e⁻⁴⁰ of that of
`<unk>`, and training can still raise those of bytes.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from transformer.config import Config
from transformer.data.batch import BOS_ID, PAD_ID
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions
from transformer.tools.convert import marian_vocabulary, tensor_file
from transformer.tools.convert.huggingface_format import ACTIVATIONS, MODELS, SPECIAL, WEIGHTS
from transformer.tools.convert.huggingface_layout import dim_order, layout
from transformer.tools.convert.marian_vocabulary import Vocabularies
from transformer.training.config import TrainConfig

_NORMS = {kind: norm for norm, (kind, _) in MODELS.items()}
_FIXED = {'scale_embedding': True}
# Settings of older folders; the library has one value for all models.
_FIXED_BY_DEFAULT = {'normalize_embedding': False, 'normalize_before': False,
                     'add_final_layer_norm': False, 'static_position_embeddings': True}
# Settings that older folders lack, with the library's defaults.
_DEFAULTS = {'share_encoder_decoder_embeddings': True, 'tie_word_embeddings': True}
_USED = {'activation_function', 'd_model', 'dropout', 'attention_dropout', 'activation_dropout',
         'pad_token_id', 'decoder_start_token_id',
         *(f'{side}_{name}' for side in ('encoder', 'decoder')
           for name in ('layers', 'ffn_dim', 'attention_heads'))}
_NAMES = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {'swish': 'silu'}
# A table that several parts share may be saved under the name of any of them.
_ALIASES = {'model.shared.weight': ('model.decoder.embed_tokens.weight', 'lm_head.weight',
                                    'model.encoder.embed_tokens.weight')}
_POSITIONS = tuple(f'model.{side}.embed_positions.weight' for side in ('encoder', 'decoder'))
_LONGEST = 512  # The library's default length of a source.
_NEVER = -1000.0  # Exact in bfloat16. No logit makes up for it.
_RARER = 40.0


class Imported(NamedTuple):
  """What a folder holds.

  Attributes:
    config: settings that describe the model; those of the text are defaults.
    vocabulary: its vocabulary, or one for each language.
    params: nested dicts of float32 arrays.
  """

  config: Config
  vocabulary: RunVocabulary
  params: dict[str, Any]


def read_model(folder: Path) -> Imported:
  """Reads a folder.

  Raises:
    UserError: a file is missing or damaged, or this project has no such model; the message names
      the setting.
  """
  about = _DEFAULTS | _read_json(folder / 'config.json')
  missing = _USED - about.keys()
  if missing:
    raise UserError(f'{folder}/config.json should describe a MarianMT model; it lacks '
                    f'{", ".join(sorted(missing))}')
  own, kind = marian_vocabulary.is_own(folder), about.get('model_type')
  if kind not in _NORMS:
    raise UserError(f'{folder}/config.json has model_type={kind}, and this project can hold only '
                    f'{" and ".join(_NORMS)}')
  fixed = _FIXED | (_FIXED_BY_DEFAULT if kind == 'marian' else {'tie_word_embeddings': True})
  for name, wanted in (fixed | (SPECIAL if own else {})).items():
    if about.get(name, _FIXED_BY_DEFAULT.get(name)) != wanted:
      raise UserError(f'{folder}/config.json has {name}={about.get(name)}, and this project can '
                      f'hold only {wanted}')
  if not (folder / WEIGHTS).exists():
    raise UserError(f'{folder} should hold its weights as {WEIGHTS}; it holds '
                    f'{", ".join(sorted(path.name for path in folder.iterdir()))}; save it again '
                    f'with save_pretrained, which writes that file. Other files of weights are '
                    f'pickles, which are not read, since they can run any code')
  tokenizer = _read_json(folder / 'tokenizer_config.json')
  found = (marian_vocabulary.read_own(folder) if own
           else marian_vocabulary.read(folder, about, tokenizer))
  stored = tensor_file.read(folder / WEIGHTS)[1]
  tensors = {name: np.asarray(each, np.float32) for name, each in stored.items()}
  given = _model_config(folder, about, tensors)
  if positions := _learned_positions(folder, given.model_dim, stored):
    given = dataclasses.replace(given, positions='learned', max_positions=len(positions[0]))
  generation = about | (_read_json(folder / 'generation_config.json')
                        if (folder / 'generation_config.json').exists() else {})
  bias_N = _bias(folder, generation, found, tensors)
  model, params = _in_order(given, found, _params(folder, given, _sizes(folder, about, found),
                                                  tensors), bias_N)
  params |= {f'{side}_position': {'table': table_TD} for side, table_TD in zip(
      ('source', 'target'), positions, strict=False)}
  data = _data_config(found.vocabulary, tokenizer, given)
  beams = generation.get('num_beams')
  rows = max(TrainConfig().tokens_per_batch // data.max_length, 1)
  config = Config(data, model, train=TrainConfig(tokens_per_batch=rows * data.max_length),
                  decode=DecodeConfig(beam_size=beams if type(beams) is int and beams > 0 else 4))
  return Imported(config, found.vocabulary, params)


def _data_config(vocabulary: RunVocabulary, tokenizer: Mapping[str, Any],
                 model: ModelConfig) -> DataConfig:
  """Returns the settings of the text that a folder knows."""
  settings: dict[str, Any] = {'vocabulary_size': vocabulary.target.size}
  if not is_shared(vocabulary):
    settings |= {'shared_vocabulary': False, 'source_vocabulary_size': vocabulary.source.size}
  limit = tokenizer.get('model_max_length', _LONGEST)
  if model.positions == 'learned':
    reach = model.max_positions - DecodeConfig.max_extra_length
    limit = min(limit, reach) if isinstance(limit, (int, float)) else reach
  if isinstance(limit, int) and 2 <= limit <= 10_000:
    settings['max_length'] = limit
  languages = tokenizer.get('source_lang'), tokenizer.get('target_lang')
  if all(isinstance(each, str) and each for each in languages) and len(set(languages)) == 2:
    settings |= dict(zip(('source_language', 'target_language'), languages, strict=True))
  return DataConfig(**settings)


def _model_config(folder: Path, about: Mapping[str, Any],
                  tensors: Mapping[str, np.ndarray]) -> ModelConfig:
  """Returns the shape of a model; biases and tables are as the tensors say."""
  for name in ('ffn_dim', 'attention_heads'):
    if about[f'encoder_{name}'] != about[f'decoder_{name}']:
      raise UserError(f'{folder}/config.json has encoder_{name}={about[f"encoder_{name}"]} and '
                      f'decoder_{name}={about[f"decoder_{name}"]}; this project has one for both')
  if about['activation_function'] not in _NAMES:
    raise UserError(f'{folder}/config.json has activation_function={about["activation_function"]}; '
                    f'this project can hold {" or ".join(_NAMES)}')
  biased = {name.split('.')[-2] for name, each in tensors.items()
            if name.endswith('_proj.bias') and each.any()}
  tables = [tensors.get(f'model.{side}.embed_tokens.weight') for side in ('encoder', 'decoder')]
  shared = about['share_encoder_decoder_embeddings'] or (
      tables[0] is not None and np.array_equal(*tables))
  settings = {
      'num_layers': about['encoder_layers'], 'encoder_layers': about['encoder_layers'],
      'decoder_layers': about['decoder_layers'], 'model_dim': about['d_model'],
      'ff_dim': about['encoder_ffn_dim'], 'num_heads': about['encoder_attention_heads'],
      'activation': _NAMES[about['activation_function']], 'norm': _NORMS[about['model_type']],
      'attention_bias': 'all' if biased - {'out_proj'} else 'output' if biased else 'none',
      'share_embeddings': shared, 'tie_output': about['tie_word_embeddings'],
      **{name: about[name] for name in ('dropout', 'attention_dropout', 'activation_dropout')}}
  try:
    return Config.from_dict({'model': settings}).model
  except UserError as error:
    raise UserError(f'{folder}/config.json describes a model that this project cannot hold: '
                    f'{error}') from error


def _learned_positions(folder: Path, dim: int,
                       stored: Mapping[str, np.ndarray]) -> list[np.ndarray]:
  """Returns the positions of encoder and decoder if one of them was trained, else nothing.

  Most folders hold none, and an exported Pegasus sinusoids, which the library may train.
  """
  tables = [stored[name] for name in _POSITIONS if name in stored]
  if any(each.shape != (len(tables[0]), dim) for each in tables):
    raise UserError(f'{folder}/{WEIGHTS} should hold positions of {dim} dims, as many for the '
                    f'encoder as for the decoder; it holds '
                    f'{" and ".join(str(list(each.shape)) for each in tables)}')
  sinusoids_TD = sinusoidal_positions(len(tables[0]) if tables else 0, dim)
  theirs_TD = sinusoids_TD[:, dim_order(dim)]
  if all(np.allclose(np.asarray(each, np.float32), theirs_TD, rtol=0,
                     atol=jnp.finfo(each.dtype).eps) for each in tables):
    return []
  back = np.argsort(dim_order(dim))
  return [np.asarray(stored.get(name, theirs_TD), np.float32)[:, back] for name in _POSITIONS]


def _sizes(folder: Path, about: Mapping[str, Any], found: Vocabularies) -> tuple[int, int]:
  """Returns the numbers of rows of the tables of source and target."""
  size = about.get('vocab_size', 0)
  separate = not about['share_encoder_decoder_embeddings']
  sizes = size, (separate and about.get('decoder_vocab_size')) or size
  for name, count, rows in zip(('source', 'target'), sizes, (found.source, found.target),
                               strict=True):
    if rows.row_N.max() >= count:
      raise UserError(f'{folder} should have a row for each piece of its vocabulary; the table of '
                      f'the {name} has {count} rows by config.json, and a piece has row '
                      f'{rows.row_N.max()}')
  return sizes


def _bias(folder: Path, generation: Mapping[str, Any], found: Vocabularies,
          tensors: Mapping[str, np.ndarray]) -> np.ndarray | None:
  """Returns the bias of each target piece's logit; None if all are zero."""
  banned = generation.get('bad_words_ids') or []
  if any(len(each) != 1 for each in banned):
    raise UserError(f'{folder} has bad_words_ids={banned}; this project can hold single tokens '
                    f'alone')
  row_N, lacks_N = found.target
  given = tensors.get('final_logits_bias', np.zeros(row_N.max() + 1, np.float32)).reshape(-1)
  if len(given) <= row_N.max():
    raise UserError(f'final_logits_bias in {folder}/{WEIGHTS} should have a number for each row; '
                    f'it has {len(given)}, and a piece has row {row_N.max()}')
  if not (lacks_N.any() or banned or given.any()):
    return None
  never_N = np.isin(row_N, np.ravel(banned)) & ~lacks_N
  if row_N[PAD_ID] == row_N[BOS_ID]:
    never_N[[PAD_ID, BOS_ID]] = True
  return np.where(never_N, _NEVER, given[row_N] - _RARER * lacks_N).astype(np.float32)


def _in_order(config: ModelConfig, found: Vocabularies, params: dict[str, Any],
              bias_N: np.ndarray | None) -> tuple[ModelConfig, dict[str, Any]]:
  """Returns the model and its parameters with rows in the order of this project's ids."""
  target = params['target_embedding']['table']
  source = target if config.share_embeddings else params['source_embedding']['table']
  shared = config.share_embeddings and is_shared(found.vocabulary) and np.array_equal(
      found.source.row_N, found.target.row_N)
  params['target_embedding'] = {'table': target[found.target.row_N]}
  if not shared:
    params['source_embedding'] = {'table': source[found.source.row_N]}
  if not config.tie_output:
    params['output'] = params['output'][found.target.row_N]
  if bias_N is not None:
    params['output_bias'] = bias_N
  return dataclasses.replace(config, share_embeddings=shared,
                             output_bias=bias_N is not None), params


def _params(folder: Path, config: ModelConfig, sizes: tuple[int, int],
            tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns the parameters in the folder's order of rows, each the reverse of an export's."""
  parts = {'none': (), 'output': ('output',), 'all': ('query', 'key', 'value', 'output')}
  back = np.argsort(dim_order(config.model_dim))
  params: dict[str, Any] = {}
  places = list(layout(config, *sizes))
  known = {*_POSITIONS, 'final_logits_bias', *_ALIASES, *itertools.chain(*_ALIASES.values()),
           *(each.name for each in places)}
  if unknown := sorted(tensors.keys() - known):
    raise UserError(f'{folder}/{WEIGHTS} holds {", ".join(unknown)}, for which this project has no '
                    f'place in such a model; save the model without them')
  for each in places:
    *path, name = each.path.split('.')
    if name == 'bias' and path[-2:-1] and path[-2].endswith('attention') and (
        path[-1] not in parts[config.attention_bias]):
      continue
    theirs = next((one for one in (each.name, *_ALIASES.get(each.name, ())) if one in tensors),
                  None)
    if theirs is None:
      raise UserError(f'{folder}/{WEIGHTS} should hold {each.name}; it does not; restore it from a '
                      f'copy')
    array = tensors[theirs] / np.float32(each.factor)
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
    raise UserError(f'{path} cannot be read: {error.strerror}; a folder needs config.json, '
                    f'tokenizer_config.json, {WEIGHTS} and its vocabulary; save model and '
                    f'tokenizer with save_pretrained') from error
  except ValueError as error:
    raise UserError(f'{path} should hold JSON; it does not; restore it from a copy') from error
  if not isinstance(found, dict):
    raise UserError(f'{path} should hold a JSON object; it does not; restore it from a copy')
  return found
