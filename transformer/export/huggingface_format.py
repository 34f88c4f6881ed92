"""Writes a model as a folder of Hugging Face's `transformers`: MarianMT with its tokenizer.

MarianMT is the published model. These are the differences, with c² = 10:

                         MarianMT                        this project
  order of the sinusoids all sines, then all cosines     interleaved
  epsilon of layer norms 10⁻⁵                            10⁻⁶
  biases of attention    everywhere                      model.attention_bias
  bias of the logits     a vector                        model.output_bias

So the dims of the model are permuted in all tensors, missing biases are zero, and the residual sums
are c times as large: a norm of c · x with an epsilon of 10⁻⁵ is the norm of x with 10⁻⁶. The first
residual sum of each stack is kept as it is, because it holds the positions; the library computes
them itself, and does not save them. Its norm differs by at most 10⁻⁵ of its variance.

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer import files
from transformer.config import Config, flatten
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.data.vocabularies import RunVocabulary, is_shared
from transformer.data.vocabulary_adoption import has_merges_alone
from transformer.errors import UserError
from transformer.export import huggingface_tokenizer, marian_vocabulary, tensor_file
from transformer.model.config import ModelConfig

WEIGHTS = 'model.safetensors'
_FEWEST_POSITIONS = 1024  # The library's default.
_GROWTH = (1e-5 / 1e-6) ** 0.5  # Of residual sums, for the other epsilon of the norms.
ACTIVATIONS = {'relu': 'relu', 'gelu': 'gelu', 'silu': 'silu'}
_SUBLAYERS = {'self_attention': 'self_attn', 'cross_attention': 'encoder_attn'}
_PROJECTIONS = {'query': 'q_proj', 'key': 'k_proj', 'value': 'v_proj', 'output': 'out_proj'}


def check_model(config: ModelConfig):
  """Checks that MarianMT can represent a model.

  Raises:
    UserError: it cannot; the message names the setting.
  """
  width = config.model_dim / config.num_heads
  for fits, setting, reason in (
      (config.norm == 'post', f'norm={config.norm}', 'its norms follow the residual sums'),
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
      raise UserError(f'MarianMT cannot hold model.{setting}: {reason}; export to '
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
    UserError: MarianMT cannot represent the model, or a file cannot be written.
  """
  check_model(config.model)
  folder = Path(folder)
  tensor_file.write(folder / WEIGHTS, _tensors(config.model, params), {'format': 'pt'})
  for name, content in (
      ('config.json', _model_config(config, vocabulary.source.size, vocabulary.target.size)),
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
  return {
      'architectures': ['MarianMTModel'], 'model_type': 'marian', 'dtype': 'float32',
      'is_encoder_decoder': True, 'vocab_size': source_size, 'decoder_vocab_size': size,
      'd_model': model.model_dim, 'num_hidden_layers': model.encoder_depth, **sides,
      'activation_function': ACTIVATIONS[model.activation], 'dropout': model.dropout,
      'attention_dropout': model.attention_dropout,
      'activation_dropout': model.activation_dropout,
      'scale_embedding': True, 'normalize_embedding': False, 'static_position_embeddings': True,
      'max_position_embeddings': max(_reach(config), _FEWEST_POSITIONS),
      'share_encoder_decoder_embeddings': _shares_all(model),
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


def _reach(config: Config) -> int:
  """Returns the length of the longest translation, in tokens."""
  return config.data.max_length + config.decode.max_extra_length


def _shares_all(config: ModelConfig) -> bool:
  """Returns whether one table serves source, target and output."""
  return config.share_embeddings and config.tie_output


class Tensor(NamedTuple):
  """A tensor of MarianMT and the parameter of this project that it is made from.

  Attributes:
    name: its name in MarianMT.
    path: the parameter's path among the nested dicts, joined by dots.
    shape: the parameter's shape.
    dims: the parameter's axis of the model's dims, the first or the last; None if it has none.
    factor: MarianMT's values divided by this project's.
  """

  name: str
  path: str
  shape: tuple[int, ...]
  dims: int | None
  factor: float = 1.0


def _tensors(config: ModelConfig, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Returns MarianMT's tensors by name."""
  given = flatten(params)
  size = len(given['target_embedding.table'])
  source_size = len(given.get('source_embedding.table', given['target_embedding.table']))
  bias_N = given.get('output_bias', np.zeros(size))
  tensors = {'final_logits_bias': np.asarray(bias_N, np.float32).reshape(1, size)}
  for each in layout(config, source_size, size):
    array = np.asarray(given.get(each.path, np.zeros(each.shape)), np.float32)
    if each.dims is not None:
      array = array.take(dim_order(config.model_dim), each.dims)
    if each.path.endswith('.bias'):
      array = array.reshape(-1)
    elif each.path.endswith('.kernel'):
      ends = (config.model_dim, -1) if each.dims == 0 else (-1, config.model_dim)
      array = array.reshape(ends).T
    tensors[each.name] = array * np.float32(each.factor)
  return tensors


def dim_order(dim: int) -> np.ndarray:
  """Returns the dims of the model in MarianMT's order: those of sines, then of cosines."""
  return np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2)])


def layout(config: ModelConfig, source_size: int, size: int) -> Iterator[Tensor]:
  """Yields all tensors of a model, with that many source and target tokens, but its bias."""
  source = 'target' if config.share_embeddings else 'source'
  tables = {'model.shared': 'target_embedding.table'} if _shares_all(config) else {
      'model.encoder.embed_tokens': f'{source}_embedding.table',
      'model.decoder.embed_tokens': 'target_embedding.table',
      **({} if config.tie_output else {'lm_head': 'output'})}
  for name, path in tables.items():
    rows = source_size if path.startswith('source') else size
    yield Tensor(f'{name}.weight', path, (rows, config.model_dim), -1)
  for side, depth, sublayers in (
      ('encoder', config.encoder_depth, ('self_attention', 'feed_forward')),
      ('decoder', config.decoder_depth, ('self_attention', 'cross_attention', 'feed_forward'))):
    for layer in range(depth):
      for sublayer in sublayers:
        before = 1.0 if (layer, sublayer) == (0, sublayers[0]) else _GROWTH
        after = 1.0 if (layer, sublayer) == (depth - 1, sublayers[-1]) else _GROWTH
        yield from _sublayer(config, (f'model.{side}.layers.{layer}', f'{side}_{layer}'), sublayer,
                             before, after)


def _sublayer(config: ModelConfig, layer: tuple[str, str], sublayer: str, before: float,
              after: float) -> Iterator[Tensor]:
  """Yields the tensors of a sublayer and of its norm.

  Args:
    config: the model's shape.
    layer: the layer's name in MarianMT, and its path.
    sublayer: its name in this project.
    before: the factor of the residual sum before the norm.
    after: the factor of the norm's output.
  """
  theirs, ours = layer
  dim = config.model_dim
  if sublayer == 'feed_forward':
    norm = 'final_layer_norm'
    yield from _linear(f'{theirs}.fc1', f'{ours}.feed_forward.inner', (dim, config.ff_dim),
                       0, 1 / before)
    yield from _linear(f'{theirs}.fc2', f'{ours}.feed_forward.outer', (config.ff_dim, dim),
                       -1, before)
  else:
    norm = f'{_SUBLAYERS[sublayer]}_layer_norm'
    heads = (config.num_heads, dim // config.num_heads)
    for part, projection in _PROJECTIONS.items():
      names = f'{theirs}.{_SUBLAYERS[sublayer]}.{projection}', f'{ours}.{sublayer}.{part}'
      if part == 'output':
        yield from _linear(*names, (*heads, dim), -1, before)
      else:  # The encoded source has a factor of one.
        reads_source = sublayer == 'cross_attention' and part != 'query'
        yield from _linear(*names, (dim, *heads), 0, 1.0 if reads_source else 1 / before)
  for name, part in (('weight', 'scale'), ('bias', 'bias')):
    yield Tensor(f'{theirs}.{norm}.{name}', f'{ours}.{sublayer}_residual.layer_norm.{part}',
                  (dim,), -1, after)


def _linear(name: str, path: str, shape: tuple[int, ...], dims: int, factor: float
            ) -> Iterator[Tensor]:
  """Yields the matrix and the bias of a projection from the model's dims (0) or to them (−1)."""
  yield Tensor(f'{name}.weight', f'{path}.kernel', shape, dims, factor)
  yield (Tensor(f'{name}.bias', f'{path}.bias', shape[1:], None) if dims == 0
         else Tensor(f'{name}.bias', f'{path}.bias', shape[-1:], -1, factor))
