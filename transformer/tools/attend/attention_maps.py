"""Attention maps: the weights of every head for a sentence and its translation."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer.data.batch import EOS_ID
from transformer.decoding.pairs import encode_pairs, longest
from transformer.model.attention_weights import AttentionWeights
from transformer.trained_run import TrainedRun


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


def attention_maps(
  run: TrainedRun, sources: Sequence[str], translations: Sequence[str]
) -> list[AttentionMap]:
  """Returns the attention map of each source and its translation, by teacher forcing.

  A search may have written the same text with other pieces than the vocabulary splits it into.
  """
  maps = []
  for pair in zip(*encode_pairs(run.vocabulary, sources, translations), strict=True):
    limits = list(zip(pair, longest(run.config), strict=True))
    ids = [[*side[:-1][: limit - 1], EOS_ID] for side, limit in limits]
    maps.append(
      AttentionMap(*ids, run.attention_of(*ids), tuple(len(side) > limit for side, limit in limits))
    )
  return maps
