"""The same weights in CTranslate2."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from work import Work

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.model.config import ModelConfig
from transformer.ops.positions import sinusoidal_positions


def write_model(folder: str, config: ModelConfig, params: Mapping[str, Any],
                pieces: Sequence[str], length: int):
  """Writes a model that `ctranslate2.Translator` loads.

  Args:
    folder: where to; made anew.
    config: the model's shape.
    params: its parameters, as this project names them.
    pieces: the vocabulary, by id.
    length: the longest sequence, source or target.

  Raises:
    ValueError: the model is none that CTranslate2 holds.
  """
  if config.positions != 'sinusoidal' or not (config.share_embeddings and config.tie_output):
    raise ValueError('only sinusoidal positions and shared embeddings are written')
  spec = TransformerSpec.from_config(config.num_layers, config.num_heads,
                                     pre_norm=config.norm == 'pre')
  table = _array(params['target_embedding']['table'])
  positions = np.asarray(sinusoidal_positions(length, config.model_dim), np.float32)
  for stack, side in ((spec.encoder, 'encoder'), (spec.decoder, 'decoder')):
    embeddings = stack.embeddings[0] if side == 'encoder' else stack.embeddings
    embeddings.weight = table
    stack.position_encodings.encodings = positions
    if config.norm == 'pre':
      _norm(stack.layer_norm, params[f'{side}_norm'])
    for index, layer in enumerate(stack.layer):
      given = params[f'{side}_{index}']
      _attention(layer.self_attention, given, 'self_attention')
      if side == 'decoder':
        _attention(layer.attention, given, 'cross_attention')
      _norm(layer.ffn.layer_norm, given['feed_forward_residual']['layer_norm'])
      _linear(layer.ffn.linear_0, given['feed_forward']['inner'])
      _linear(layer.ffn.linear_1, given['feed_forward']['outer'])
  spec.decoder.projection.weight = table
  spec.register_source_vocabulary(list(pieces))
  spec.register_target_vocabulary(list(pieces))
  spec.config.unk_token, spec.config.bos_token = pieces[UNK_ID], pieces[BOS_ID]
  spec.config.eos_token = pieces[EOS_ID]
  spec.config.decoder_start_token = pieces[BOS_ID]
  spec.config.add_source_eos = True
  spec.config.layer_norm_epsilon = 1e-6
  spec.validate()
  spec.optimize()
  os.makedirs(folder, exist_ok=True)
  spec.save(folder)


def make_decoding(work: Work, folder: str, beam_size: int, compute_type: str):
  """A search for as many tokens as the sources have, all sentences in one batch.

  Args:
    work: the batch.
    folder: a model of `write_model`.
    beam_size: 1 is greedy.
    compute_type: CTranslate2's, such as `float32` or `int8`.

  Returns:
    The function to time.
  """
  translator = ctranslate2.Translator(folder, compute_type=compute_type, inter_threads=1,
                                      intra_threads=len(os.sched_getaffinity(0)))
  # It adds the end token itself.
  sentences = [[str(token) for token in row[:-1]] for row in work.sources()]

  def run():
    results = translator.translate_batch(
        sentences, beam_size=beam_size, length_penalty=0.6 if beam_size > 1 else 0.0,
        max_decoding_length=work.length, min_decoding_length=work.length)
    words = [each.hypotheses[0] for each in results]
    return {'tokens': sum(map(len, words)), 'words': [[int(word) for word in row] for row in words]}

  return run


def _array(leaf):
  return np.asarray(leaf, np.float32)


def _norm(spec, given):
  spec.gamma, spec.beta = _array(given['scale']), _array(given['bias'])


def _linear(spec, given):
  """A kernel [inputs…, outputs…] as CTranslate2 has it, [outputs, inputs]."""
  bias = _array(given['bias']).reshape(-1)
  spec.weight = np.ascontiguousarray(_array(given['kernel']).reshape(-1, bias.size).T)
  spec.bias = bias


def _attention(spec, given, name):
  """Projections, those that share an input joined."""
  own = given[name]
  _norm(spec.layer_norm, given[f'{name}_residual']['layer_norm'])
  joined = (('query', 'key', 'value'),) if name == 'self_attention' else (
      ('query',), ('key', 'value'))
  for linear, parts in zip(spec.linear, joined, strict=False):
    width = _array(own['query']['kernel']).shape[0]
    linear.weight = np.concatenate(
        [_array(own[part]['kernel']).reshape(width, -1).T for part in parts])
    linear.bias = np.concatenate([_array(own[part]['bias']).reshape(-1) for part in parts])
  _linear(spec.linear[-1], own['output'])


def pieces_of_ids(vocabulary_size: int) -> list[str]:
  """A vocabulary in which a piece is its id, with the reserved ones where they belong."""
  reserved = {PAD_ID: '<pad>', BOS_ID: '<s>', EOS_ID: '</s>', UNK_ID: '<unk>'}
  return [reserved.get(token, str(token)) for token in range(vocabulary_size)]
