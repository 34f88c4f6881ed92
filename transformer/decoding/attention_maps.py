"""Attention maps: the weights of every head for a sentence and its translation, with the tokens."""

import itertools
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer.data.batch import EOS_ID, PAD_ID
from transformer.decoding.forced_decoding import forced
from transformer.decoding.translator import padded_length
from transformer.model.attention_weights import AttentionWeights, attention_weights
from transformer.model.transformer import Transformer

# A picture's measures in pixels: the largest side of a weight's square, the largest side of a map,
# and the gap between maps.
_SQUARE, _MAP, _GAP = 8, 256, 4
_GREY = 160  # The shade of the gap.


class Word(NamedTuple):
  """A word: the pieces from `start` up to, not including, `stop`."""

  text: str
  start: int
  stop: int


class AttentionMap(NamedTuple):
  """A sentence, its translation, and the attention weights between them.

  Attributes:
    source: S pieces, the end token last: the encoder's input.
    target: T pieces, the end token last: the decoder's output. The decoder's input,
      to which its self-attention attends, is the begin token and all pieces but the last.
    source_words: the words of the source; the end token is a word.
    target_words: the words of the target.
    weights: float32 arrays [L, H, S, S], [L, H, T, T] and [L, H, T, S], L as in
      `AttentionWeights`; row t is the query that predicts target token t.
    source_cut: whether the source was too long and lost its end.
    target_cut: whether the translation was too long and lost its end.
  """

  source: list[str]
  target: list[str]
  source_words: list[Word]
  target_words: list[Word]
  weights: AttentionWeights
  source_cut: bool
  target_cut: bool


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
    self._vocabulary = vocabulary
    self._max_source, self._max_target = max_source, max_target
    self._weights: Callable[..., AttentionWeights] = jax.jit(
        lambda params, *sides: attention_weights(model, params, *forced(*sides)))

  def __call__(self, params, sources: Sequence[str],
               translations: Sequence[str]) -> list[AttentionMap]:
    """Returns the attention map of each source and its translation, by teacher forcing.

    The vocabulary splits a translation into pieces anew; a search may have written the same
    text with other pieces.
    """
    return [self._attention_map(params, *pair) for pair in zip(
        self._vocabulary.source.encode_batch(sources),
        self._vocabulary.target.encode_batch(translations), strict=True)]

  def _attention_map(self, params, source, target) -> AttentionMap:
    source_ids = [*source[:self._max_source - 1], EOS_ID]
    target_ids = [*target[:self._max_target - 1], EOS_ID]
    lengths = len(source_ids), len(target_ids)
    longest = max(lengths)
    found = jax.device_get(self._weights(
        params, _row(source_ids, padded_length(longest, self._max_source)),
        _row(target_ids, padded_length(longest, self._max_target))))
    s, t = lengths
    weights = AttentionWeights(found.encoder[:, 0, :, :s, :s], found.decoder[:, 0, :, :t, :t],
                               found.cross[:, 0, :, :t, :s])
    sides = (self._vocabulary.source, source_ids), (self._vocabulary.target, target_ids)
    pieces = ([vocabulary.piece(token) for token in ids] for vocabulary, ids in sides)
    words = (_words(vocabulary, ids) for vocabulary, ids in sides)
    return AttentionMap(*pieces, *words, weights, len(source) >= self._max_source,
                        len(target) >= self._max_target)


def _words(vocabulary, ids) -> list[Word]:
  """Joins pieces into words at spaces; punctuation at the end of a word is a word too."""
  pieces = [vocabulary.piece(token) for token in ids]
  starts = [len(ids)]
  for place in reversed(range(len(ids))):
    ends_clause = starts[-1] == place + 1 and _is_punctuation(pieces[place])
    if not place or ids[place] == EOS_ID or pieces[place].startswith('▁') or ends_clause:
      starts.append(place)
  starts.reverse()
  return [Word(vocabulary.decode(ids[start:stop]) if ids[start] != EOS_ID
               else pieces[start], start, stop) for start, stop in itertools.pairwise(starts)]


def picture(weights: np.ndarray) -> np.ndarray:
  """Draws the maps of all heads side by side, a row for each layer.

  Args:
    weights: float32 [L, H, T, S].

  Returns:
    uint8 [height, width]: a square for each weight, white at 0 and black at 1; queries
    from top to bottom, keys from left to right.
  """
  layers, heads, queries, keys = weights.shape
  side = max(1, min(_SQUARE, _MAP // max(queries, keys)))
  tall, wide = queries * side, keys * side
  drawn = np.full((layers * (tall + _GAP) - _GAP, heads * (wide + _GAP) - _GAP), _GREY, np.uint8)
  for layer, head in itertools.product(range(layers), range(heads)):
    top, left = layer * (tall + _GAP), head * (wide + _GAP)
    shade = np.round(255 * (1 - np.clip(weights[layer, head], 0, 1))).astype(np.uint8)
    drawn[top:top + tall, left:left + wide] = shade.repeat(side, axis=0).repeat(side, axis=1)
  return drawn


def _is_punctuation(piece) -> bool:
  return all(unicodedata.category(each).startswith('P') for each in piece)


def _row(ids, length) -> np.ndarray:
  """Returns a sentence as a batch of one padded row, int32 [1, length]."""
  row = np.full((1, length), PAD_ID, np.int32)
  row[0, :len(ids)] = ids
  return row
