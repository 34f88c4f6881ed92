"""Attention maps: the weights of every head for a sentence and its translation."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.likelihoods import forced
from transformer.decoding.translator import padded_length
from transformer.model.attention_weights import AttentionWeights, attention_weights
from transformer.model.transformer import Transformer


class AttentionMap(NamedTuple):
  """The attention weights between a sentence and its translation.

  Attributes:
    source: the ids of S tokens, the end token last: the encoder's input.
    target: the ids of T tokens, the end token last: the decoder's output. The decoder's input, to
      which its self-attention attends, is the begin token and all of these but the last.
    weights: float32 arrays [L, H, S, S], [L, H, T, T] and [L, H, T, S], L as in
      `AttentionWeights`; row t is the query that predicts target token t.
    cut: whether the source, and whether the translation, was too long and lost its end.
  """

  source: list[int]
  target: list[int]
  weights: AttentionWeights
  cut: tuple[bool, bool]


class Attender:
  """Computes attention maps with a model, compiled once for each padded length."""

  def __init__(self, model: Transformer, vocabulary, max_source: int, max_target: int):
    """Builds the function that computes the weights.

    Args:
      model: the Transformer.
      vocabulary: splits text into pieces, by its `source` and its `target`.
      max_source: the most tokens of a source, end token included; longer sources are cut.
      max_target: the most tokens of a translation, likewise.
    """
    self._vocabulary, self._most = vocabulary, (max_source, max_target)
    self._weights = jax.jit(
        lambda params, *sides: attention_weights(model, params, *forced(*sides)))

  def __call__(self, params, sources: Sequence[str],
               translations: Sequence[str]) -> list[AttentionMap]:
    """Returns the attention map of each source and its translation, by teacher forcing.

    The vocabulary splits a translation into pieces anew; a search may have written the same
    text with other pieces.
    """
    return [self._attention_map(params, pair) for pair in zip(
        self._vocabulary.source.encode_batch(sources),
        self._vocabulary.target.encode_batch(translations), strict=True)]

  def _attention_map(self, params, pair) -> AttentionMap:
    cut = tuple(len(ids) >= most for ids, most in zip(pair, self._most, strict=True))
    sides = [[*ids[:most - 1], EOS_ID] for ids, most in zip(pair, self._most, strict=True)]
    rows = [np.full((1, padded_length(max(map(len, sides)), most)), PAD_ID, np.int32)
            for most in self._most]
    for row, ids in zip(rows, sides, strict=True):
      row[0, :len(ids)] = ids
    encoder, decoder, cross = jax.device_get(self._weights(params, *rows))
    s, t = map(len, sides)
    return AttentionMap(*sides, AttentionWeights(
        encoder[:, 0, :, :s, :s], decoder[:, 0, :, :t, :t], cross[:, 0, :, :t, :s]), cut)
