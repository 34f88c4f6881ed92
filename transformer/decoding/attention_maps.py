"""Attention maps: the weights of every head for a sentence and its translation."""

from collections.abc import Sequence
from typing import NamedTuple

import jax

from transformer.data.batch import EOS_ID
from transformer.decoding.likelihoods import forced, pair_batches
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
    """Takes the most tokens of a source, and of a translation, which may not be fewer.

    Longer ones are cut. The end token counts.
    """
    self._vocabulary, self._most = vocabulary, (max_source, max_target)
    self._weights = jax.jit(
        lambda params, *sides: attention_weights(model, params, *forced(*sides)))

  def __call__(self, params, sources: Sequence[str],
               translations: Sequence[str]) -> list[AttentionMap]:
    """Returns the attention map of each source and its translation, by teacher forcing.

    A search may have written the same text with other pieces than the vocabulary splits it into.
    """
    return [self._attention_map(params, pair) for pair in zip(
        self._vocabulary.source.encode_batch(sources),
        self._vocabulary.target.encode_batch(translations), strict=True)]

  def _attention_map(self, params, pair) -> AttentionMap:
    cut = tuple(len(ids) >= most for ids, most in zip(pair, self._most, strict=True))
    source, target = ([*ids[:most - 1], EOS_ID]
                      for ids, most in zip(pair, self._most, strict=True))
    (_, *sides), = pair_batches([source], [target], [0], self._most, 1)
    encoder, decoder, cross = jax.device_get(self._weights(params, *sides))
    s, t = len(source), len(target)
    return AttentionMap(source, target, AttentionWeights(
        encoder[:, 0, :, :s, :s], decoder[:, 0, :, :t, :t], cross[:, 0, :, :t, :s]), cut)
