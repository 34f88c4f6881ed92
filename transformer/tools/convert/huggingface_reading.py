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

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from transformer import files
from transformer.config import Config
from transformer.data.batch import BOS_ID, PAD_ID, UNK_ID
from transformer.data.config import DataConfig
from transformer.data.vocabulary.vocabularies import RunVocabulary, is_shared
from transformer.decoding.config import DecodeConfig
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.tools.convert import huggingface_tensors, marian_vocabulary
from transformer.tools.convert.huggingface_format import ACTIVATIONS, MODELS, SPECIAL
from transformer.tools.convert.huggingface_tensors import POSITIONS
from transformer.tools.convert.marian_vocabulary import JsonFile, Vocabularies
from transformer.trained_run import TrainedRun
from transformer.training.config import TrainConfig
from transformer.training.mesh import replicated, sentence_mesh

_NORMS = {kind: norm for norm, (kind, _) in MODELS.items()}
_ACTIVATIONS = {name: name for name in ACTIVATIONS} | {'swish': 'silu'}
# Settings that older folders have, and those that they lack, with the library's defaults.
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
# A table that several parts share may be saved under the name of any of them.
_ALIASES = {
  'model.shared.weight': (
    'model.decoder.embed_tokens.weight',
    'lm_head.weight',
    'model.encoder.embed_tokens.weight',
  )
}
_ATTENTION_BIASES = {'none': (), 'output': ('output',), 'all': ('query', 'key', 'value', 'output')}
_LONGEST = 512  # The library's default length of a source.
_NEVER = -1000.0  # Exact in bfloat16. No logit makes up for it.
_RARER = 40.0


class Imported(NamedTuple):
  """What a folder holds; the settings of the text are defaults."""

  config: Config
  vocabulary: RunVocabulary
  params: dict[str, Any]


def load_huggingface(folder: str | os.PathLike[str]) -> TrainedRun:
  """Loads a folder as a run, for use in Python, without writing one."""
  folder = files.as_path(folder)
  config, vocabulary, params = read_model(folder)
  model = Transformer(config.model, vocabulary.target.size, vocabulary.source.size)
  mesh = sentence_mesh(config.decode.batch_size)
  return TrainedRun(
    folder, config, vocabulary, model, jax.device_put(params, replicated(mesh)), [0], mesh
  )


def read_model(folder: Path) -> Imported:
  """Reads a folder; refuses a damaged one, and a model that this project cannot hold."""
  about = JsonFile(folder / 'config.json')
  for name, value in _DEFAULTS.items():
    about.setdefault(name, value)
  _check_settings(folder, about)
  tokenizer = JsonFile(folder / 'tokenizer_config.json')
  vocabularies = marian_vocabulary.read(folder, about, bool(tokenizer.get('separate_vocabs')))
  stored = huggingface_tensors.read_weights(folder)
  tensors = {name: np.asarray(tensor, np.float32) for name, tensor in stored.items()}
  model = _model_settings(about, tensors)
  params = _params(folder, about, ModelConfig(**model), tensors)
  generation = about
  if (path := folder / 'generation_config.json').exists():
    generation = about | JsonFile(path)
  params |= _bias(folder, generation, vocabularies.target_N, tensors)
  model |= {
    'share_embeddings': _put_in_order(params, vocabularies),
    'output_bias': 'output_bias' in params,
  }
  if tables := _learned_positions(about['d_model'], stored):
    model |= {'positions': 'learned', 'max_positions': len(tables[0])}
    params |= {
      f'{side}_position': {'table': table_TD}
      for side, table_TD in zip(('source', 'target'), tables, strict=True)
    }
  data = _data_settings(vocabularies.vocabulary, tokenizer, model.get('max_positions'))
  length = DataConfig(**data).max_length
  config = Config.from_dict(
    {
      'data': data,
      'model': model,
      'decode': {'beam_size': generation.get('num_beams') or DecodeConfig.beam_size},
      'train': {'tokens_per_batch': max(TrainConfig().tokens_per_batch // length, 1) * length},
    }
  )
  return Imported(config, vocabularies.vocabulary, params)


def _check_settings(folder: Path, about: Mapping[str, Any]):
  """Refuses a model that this project cannot hold."""
  allowed = {
    'model_type': tuple(_NORMS),
    'scale_embedding': (True,),
    'activation_function': tuple(_ACTIVATIONS),
    **{f'decoder_{name}': (about[f'encoder_{name}'],) for name in ('ffn_dim', 'attention_heads')},
  }
  fixed = {'tie_word_embeddings': True} if about.get('model_type') == 'pegasus' else _OF_MARIAN
  if marian_vocabulary.is_own(folder):
    fixed = fixed | SPECIAL
  allowed |= {name: (value,) for name, value in fixed.items()}
  for name, values in allowed.items():
    if about[name] not in values:
      raise UserError(
        f'{folder}/config.json has {name}={about[name]}, and this project can hold '
        f'only {" or ".join(map(str, values))}'
      )


def _model_settings(about: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns the settings of a model; biases and tables are as the tensors say."""
  biased = {
    name.split('.')[-2]
    for name, tensor in tensors.items()
    if name.endswith('_proj.bias') and tensor.any()
  }
  tables = [tensors.get(f'model.{side}.embed_tokens.weight') for side in ('encoder', 'decoder')]
  return {
    'num_layers': about['encoder_layers'],
    'decoder_layers': about['decoder_layers'],
    'model_dim': about['d_model'],
    'ff_dim': about['encoder_ffn_dim'],
    'num_heads': about['encoder_attention_heads'],
    'activation': _ACTIVATIONS[about['activation_function']],
    'norm': _NORMS[about['model_type']],
    'attention_bias': 'all' if biased - {'out_proj'} else 'output' if biased else 'none',
    'share_embeddings': about['share_encoder_decoder_embeddings']
    or (tables[0] is not None and np.array_equal(*tables)),
    'tie_output': about['tie_word_embeddings'],
    **{name: about[name] for name in ('dropout', 'attention_dropout', 'activation_dropout')},
  }


def _params(
  folder: Path, about: Mapping[str, Any], model: ModelConfig, tensors: Mapping[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the parameters in the folder's order of rows."""
  separate = not about['share_encoder_decoder_embeddings']
  sizes = about['vocab_size'], (separate and about.get('decoder_vocab_size')) or about['vocab_size']
  places = list(huggingface_tensors.layout(model, *sizes))
  known = {*POSITIONS, 'final_logits_bias', *_ALIASES, *(place.name for place in places)}.union(
    *_ALIASES.values()
  )
  if unknown := sorted(tensors.keys() - known):
    raise UserError(
      f'{folder} holds {", ".join(unknown)}, for which this project has no '
      f'place in such a model; save the model without them'
    )
  arrays = {}
  for place in places:
    projection = re.search(r'attention\.(\w+)\.bias$', place.path)
    if projection and projection[1] not in _ATTENTION_BIASES[model.attention_bias]:
      continue
    names = place.name, *_ALIASES.get(place.name, ())
    theirs = next((given for given in names if given in tensors), None)
    if theirs is None or tensors[theirs].size != np.prod(place.shape):
      raise UserError(
        f'{folder} should hold {place.name} with {np.prod(place.shape)} '
        f'numbers, as config.json says; it holds '
        f'{tensors[theirs].size if theirs else "none"}'
      )
    arrays[place.path] = place.ours(tensors[theirs])
  return traverse_util.unflatten_dict(arrays, sep='.')


def _bias(
  folder: Path, generation: Mapping[str, Any], row_N: np.ndarray, tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Returns the bias of each target piece's logit as a parameter, if one of them is not zero."""
  banned = generation.get('bad_words_ids') or []
  if any(len(tokens) != 1 for tokens in banned):
    raise UserError(
      f'{folder} has bad_words_ids={banned}; this project can hold single tokens alone'
    )
  lacks_N = (row_N == row_N[UNK_ID]) & (np.arange(len(row_N)) != UNK_ID)
  given = tensors.get('final_logits_bias', np.zeros(row_N.max() + 1, np.float32)).reshape(-1)
  if not (lacks_N.any() or banned or given.any()):
    return {}
  never_N = np.isin(row_N, np.ravel(banned)) & ~lacks_N
  if row_N[PAD_ID] == row_N[BOS_ID]:
    never_N[[PAD_ID, BOS_ID]] = True
  bias_N = np.where(never_N, _NEVER, given[row_N] - _RARER * lacks_N)
  return {'output_bias': bias_N.astype(np.float32)}


def _put_in_order(params: dict[str, Any], vocabularies: Vocabularies) -> bool:
  """Puts the rows of tables in the order of this project's ids; returns whether one is shared."""
  vocabulary, source_N, target_N = vocabularies
  target = params['target_embedding']['table']
  source = params.pop('source_embedding', None)
  shared = source is None and is_shared(vocabulary) and np.array_equal(source_N, target_N)
  params['target_embedding'] = {'table': target[target_N]}
  if not shared:
    params['source_embedding'] = {'table': (source['table'] if source else target)[source_N]}
  if 'output' in params:
    params['output'] = params['output'][target_N]
  return shared


def _learned_positions(dim: int, stored: Mapping[str, np.ndarray]) -> list[np.ndarray]:
  """Returns the positions of encoder and decoder if one of them was trained, else nothing.

  Most folders hold none, and an exported Pegasus sinusoids, which the library may train.
  """
  tables = [stored[name] for name in POSITIONS if name in stored]
  theirs_TD = huggingface_tensors.sinusoids(len(tables[0]) if tables else 0, dim)
  if all(
    np.allclose(np.asarray(table, np.float32), theirs_TD, rtol=0, atol=jnp.finfo(table.dtype).eps)
    for table in tables
  ):
    return []
  order_D = np.argsort(huggingface_tensors.dim_order(dim))
  return [np.asarray(stored.get(name, theirs_TD), np.float32)[:, order_D] for name in POSITIONS]


def _data_settings(
  vocabulary: RunVocabulary, tokenizer: Mapping[str, Any], max_positions: int | None
) -> dict[str, Any]:
  """Returns the settings of the text that a folder knows, and else those of `configs/text.py`."""
  settings: dict[str, Any] = {
    'source': 'text',
    'dir': 'data/text',
    'train': ('train',),
    'valid': 'valid',
    'test': 'test',
    'vocabulary_size': vocabulary.target.size,
  }
  if not is_shared(vocabulary):
    settings |= {'shared_vocabulary': False, 'source_vocabulary_size': vocabulary.source.size}
  limit = tokenizer.get('model_max_length', _LONGEST)
  if max_positions is not None:
    limit = min(limit, max_positions - DecodeConfig.max_extra_length)
  if limit <= 10_000:  # The library writes 10³⁰ where there is none.
    settings['max_length'] = limit
  languages = tokenizer.get('source_lang'), tokenizer.get('target_lang')
  if all(languages) and languages[0] != languages[1]:
    settings |= {'source_language': languages[0], 'target_language': languages[1]}
  return settings
