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
  most_source, most_target = longest(run.config)
  maps = []
  for source, target in zip(
    *encode_pairs(run.vocabulary, sources, translations), strict=True
  ):
    source_ids = _cut(source, most_source)
    target_ids = _cut(target, most_target)
    weights = run.attention_of(source_ids, target_ids)
    cut = (len(source) > most_source, len(target) > most_target)
    maps.append(AttentionMap(source_ids, target_ids, weights, cut))
  return maps


def _cut(ids: Sequence[int], most: int) -> list[int]:
  """Returns ids of at most `most` tokens, the last of which is the end token."""
  return [*ids[:-1][: most - 1], EOS_ID]
