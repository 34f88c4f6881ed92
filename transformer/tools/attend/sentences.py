"""Sentences for the page: attention maps with pieces and words in place of ids."""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from transformer.data.batch import EOS_ID
from transformer.decoding.attention_maps import AttentionMap
from transformer.model.attention_weights import AttentionWeights


class Word(NamedTuple):
  """A word: the pieces from `start` up to, not including, `stop`."""

  text: str
  start: int
  stop: int


class Sentence(NamedTuple):
  """A source, its translation, and the attention between them.

  Attributes:
    source: the pieces of the source, the end token last.
    target: the pieces of the translation, likewise.
    source_words: the words of the source; the end token is a word.
    target_words: the words of the translation.
    weights: as in `AttentionMap`.
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


def sentences_of(maps: Sequence[AttentionMap], vocabulary) -> list[Sentence]:
  """Returns the sentence of each map; `vocabulary` has the pieces of its `source` and `target`."""
  sentences = []
  for shown in maps:
    sides = (vocabulary.source, shown.source), (vocabulary.target, shown.target)
    pieces = [[language.piece(token) for token in ids] for language, ids in sides]
    words = [_words(language, ids) for language, ids in sides]
    sentences.append(Sentence(*pieces, *words, shown.weights, *shown.cut))
  return sentences


def _words(vocabulary, ids: Sequence[int]) -> list[Word]:
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


def _is_punctuation(piece: str) -> bool:
  return all(unicodedata.category(character).startswith('P') for character in piece)
