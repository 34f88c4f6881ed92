"""Attention maps: the weights of every head for a sentence and its translation."""

from collections.abc import Sequence
from typing import NamedTuple

import jax

from transformer.data.batch import EOS_ID
from transformer.decoding.likelihoods import forced, pair_batches
from transformer.model.attention_weights import AttentionWeights, attention_weights
from transformer.runs.loading import Run


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


def attention_maps(run: Run, sources: Sequence[str],
                   translations: Sequence[str]) -> list[AttentionMap]:
  """Returns the attention map of each source and its translation, by teacher forcing.

  A search may have written the same text with other pieces than the vocabulary splits it into.
  """
  longest = run.config.data.max_length
  most = longest, longest + run.config.decode.max_extra_length
  weights_of = jax.jit(
      lambda params, *sides: attention_weights(run.model, params, *forced(*sides)))
  maps = []
  for pair in zip(run.vocabulary.source.encode_batch(sources),
                  run.vocabulary.target.encode_batch(translations), strict=True):
    cut = tuple(len(ids) >= limit for ids, limit in zip(pair, most, strict=True))
    source, target = ([*ids[:limit - 1], EOS_ID] for ids, limit in zip(pair, most, strict=True))
    (_, *sides), = pair_batches([source], [target], [0], most, 1)
    encoder, decoder, cross = jax.device_get(weights_of(run.params, *sides))
    s, t = len(source), len(target)
    maps.append(AttentionMap(source, target, AttentionWeights(
        encoder[:, 0, :, :s, :s], decoder[:, 0, :, :t, :t], cross[:, 0, :, :t, :s]), cut))
  return maps
