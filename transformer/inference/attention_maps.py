"""What a model looks at while it translates: the weights of every head, with their tokens."""

import itertools
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.inference.translate import padded_length
from transformer.model.attention_weights import AttentionWeights, attention_weights
from transformer.model.transformer import Transformer

# Of a picture, in pixels: a weight and a map at most, what lies between maps, and its shade.
_SQUARE, _MAP, _GAP, _BETWEEN = 8, 256, 4, 160


class Word(NamedTuple):
  """Pieces that belong together: those from `start` to before `stop`."""

  text: str
  start: int
  stop: int


class AttentionMap(NamedTuple):
  """A sentence, its translation, and what attended to what.

  Attributes:
    source: S pieces, the end token last; what the encoder reads.
    target: T pieces, the end token last; what the decoder writes. Its own input,
      which its self-attention looks at, is the begin token and all of them but the last.
    source_words: the pieces of the source as words; the end token is one.
    target_words: those of the target.
    weights: float32 arrays [L, H, S, S], [L, H, T, T] and [L, H, T, S]; the query of
      row t is the position that writes target token t.
    source_cut: the source was longer than allowed and lost its end.
    target_cut: the translation was.
  """

  source: list[str]
  target: list[str]
  source_words: list[Word]
  target_words: list[Word]
  weights: AttentionWeights
  source_cut: bool
  target_cut: bool


class Attender:
  """A model and its vocabulary, compiled once for each length."""

  def __init__(self, model: Transformer, vocabulary, max_source: int, max_target: int):
    """Prepares to look.

    Args:
      model: the Transformer.
      vocabulary: cuts text into pieces.
      max_source: the most tokens of a source, end token included; longer ones are cut.
      max_target: the same of a translation.
    """
    self._vocabulary = vocabulary
    self._max_source, self._max_target = max_source, max_target
    self._weights: Callable[..., AttentionWeights] = jax.jit(
        lambda params, *batch: attention_weights(model, params, *batch))

  def __call__(self, params, sources: Sequence[str],
               translations: Sequence[str]) -> list[AttentionMap]:
    """Reads each source and writes its translation, and keeps what attended to what.

    A translation is cut into pieces as the vocabulary cuts any text, which may not
    be the pieces that a search made it of.
    """
    return [self._look(params, *pair) for pair in zip(
        self._vocabulary.encode_batch(list(sources)),
        self._vocabulary.encode_batch(list(translations)), strict=True)]

  def _look(self, params, source, target) -> AttentionMap:
    source_ids = [*source[:self._max_source - 1], EOS_ID]
    target_ids = [*target[:self._max_target - 1], EOS_ID]
    lengths = len(source_ids), len(target_ids)
    longest = max(lengths)
    batch = (*_row(source_ids, padded_length(longest, self._max_source)),
             *_row([BOS_ID, *target_ids[:-1]], padded_length(longest, self._max_target)))
    found = jax.device_get(self._weights(params, *batch))
    s, t = lengths
    weights = AttentionWeights(found.encoder[:, 0, :, :s, :s], found.decoder[:, 0, :, :t, :t],
                               found.cross[:, 0, :, :t, :s])
    pieces = [[self._vocabulary.piece(token) for token in ids] for ids in (source_ids, target_ids)]
    return AttentionMap(*pieces, self._words(source_ids), self._words(target_ids), weights,
                        len(source) >= self._max_source, len(target) >= self._max_target)

  def _words(self, ids) -> list[Word]:
    """Joins pieces to words, which begin after a space; what ends a clause is one, too."""
    pieces = [self._vocabulary.piece(token) for token in ids]
    starts = [len(ids)]
    for place in reversed(range(len(ids))):
      ends_clause = starts[-1] == place + 1 and _is_punctuation(pieces[place])
      if not place or ids[place] == EOS_ID or pieces[place].startswith('▁') or ends_clause:
        starts.append(place)
    starts.reverse()
    return [Word(self._vocabulary.decode(ids[start:stop]) if ids[start] != EOS_ID
                 else pieces[start], start, stop) for start, stop in itertools.pairwise(starts)]


def picture(weights: np.ndarray) -> np.ndarray:
  """Draws the maps of all heads side by side, a row for each layer.

  Args:
    weights: float32 [L, H, T, S].

  Returns:
    uint8 [height, width]: a square for each weight, black where it is one; queries go
    down, keys to the right.
  """
  layers, heads, queries, keys = weights.shape
  side = max(1, min(_SQUARE, _MAP // max(queries, keys)))
  tall, wide = queries * side, keys * side
  drawn = np.full((layers * (tall + _GAP) - _GAP, heads * (wide + _GAP) - _GAP), _BETWEEN, np.uint8)
  for layer, head in itertools.product(range(layers), range(heads)):
    top, left = layer * (tall + _GAP), head * (wide + _GAP)
    shade = np.round(255 * (1 - np.clip(weights[layer, head], 0, 1))).astype(np.uint8)
    drawn[top:top + tall, left:left + wide] = shade.repeat(side, axis=0).repeat(side, axis=1)
  return drawn


def _is_punctuation(piece) -> bool:
  return all(unicodedata.category(each).startswith('P') for each in piece)


def _row(ids, length) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """One sentence as a batch of a row: tokens, segments and positions, each [1, length]."""
  row = np.full((1, length), PAD_ID, np.int32)
  row[0, :len(ids)] = ids
  places = np.arange(length, dtype=np.int32)[None]
  return row, (places < len(ids)).astype(np.int32), places
