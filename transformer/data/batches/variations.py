"""Variations: what happens to training sentences each time that they are used.

`data.variations` names functions of one's own; docs/own-parts.md has an example. What becomes of a
pair depends on nothing but its text and its keys, which are functions of (seed, round, pair). So a
resumed run has the batches of an uninterrupted one.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from transformer import own_code
from transformer.data.batch import Batch
from transformer.data.batches.packing import Packing, Rows
from transformer.data.batches.shuffling import mix
from transformer.data.batches.training_batches import (
  BatchesByStep,
  TrainingBatches,
  assemble,
  take,
)
from transformer.data.config import DataConfig
from transformer.data.encoding import EncodedPairs, Sentences, count_from_zero
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

# (sources, targets, uint64 keys of both [2, pairs]) -> other sources and targets in the same order.
Vary = Callable[[Sentences, Sentences, np.ndarray], tuple[Sentences, Sentences]]

_WINDOW_PAIRS = (
  32_768  # approximate number of pairs that are varied and packed together
)
_FEWEST_BATCHES = (
  16  # in a window, which has one more than planned: few would be half empty
)
_SPARE = (
  0.01  # spare rows in each window, as a share of the rows that the first window needs
)


def fractions(keys: np.ndarray) -> np.ndarray:
  """Returns a number in [0, 1) for each key, float64, to choose a share of the sentences by."""
  return (keys >> np.uint64(11)) * 2.0**-53


def replaced(
  sentences: Sentences, chosen: np.ndarray, texts: Sequence[str], vocabulary: Vocabulary
) -> Sentences:
  """Returns sentences of which the chosen ones, ascending numbers, have other texts."""
  changed = Sentences.ended(vocabulary.encode_batch(texts))
  numbers = np.arange(len(sentences))
  numbers[chosen] = len(sentences) + np.arange(len(chosen))
  return take([sentences, changed], numbers)


def own_variations(data: DataConfig, vocabulary: RunVocabulary) -> list[Vary]:
  """Returns the variations that `data.variations` names."""
  variations = []
  for place, part in enumerate(data.variations):
    vary = own_code.build(part, 'variation', data, vocabulary)
    variations.append(_checked(own_code.name_of(part), vary, place))
  return variations


def _checked(spec: str, vary: Vary, place: int) -> Vary:
  def checked(source: Sentences, target: Sentences, keys: np.ndarray):
    # Variations that draw alike would change the same sentences.
    own_keys = mix(keys + np.uint64(place)) if place else keys
    with own_code.guarded(f'the variation {spec} failed'):
      varied = vary(source, target, own_keys)
      sizes = [len(side) for side in varied if isinstance(side, Sentences)]
    if sizes != [len(source)] * 2:
      raise UserError(
        f'the variation {spec} must return two Sentences, each as many as it got'
      )
    return varied

  return checked


class _Window(NamedTuple):
  """Both sides of a window's pairs, as `planned` and `varied`.

  `numbers` are those of the pairs in the plan, and `sizes` the numbers of pairs in planned rows.
  """

  planned: list[Sentences]
  varied: list[Sentences]
  numbers: np.ndarray
  sizes: np.ndarray


class VariedBatches(BatchesByStep):
  """The batches of a plan by step, of varied sentences.

  Varied pairs have other lengths, so the planned rows no longer fit. A window is a fixed number of
  `planned` batches, whose pairs are packed again into a fixed number of `real` ones. So the batch
  of a step depends on one window only. An epoch of a small corpus is one window.
  """

  def __init__(self, plan: TrainingBatches, variations: Sequence[Vary], seed: int):
    self.shape = plan.shape
    self._plan = plan
    self._variations = variations
    self._seed = seed
    epoch = plan.batches_in_epoch
    windows = max(round(sum(map(len, plan.corpora)) / _WINDOW_PAIRS), 1)
    self.planned = min(max(-(-epoch // windows), _FEWEST_BATCHES), epoch)
    rows = self._pack(self._vary(0).varied).num_rows
    self.real = max(math.ceil(rows * (1 + _SPARE) / self.shape.rows), self.planned)
    self._window = functools.lru_cache(maxsize=2)(self._make_window)

  def __getitem__(self, step: int) -> Batch:
    number, index = divmod(step, self.real)
    pairs, numbers, rows = self._window(number)
    places = np.arange(index, len(rows.sizes), self.real)
    sizes = rows.sizes[places]
    chosen = rows.pairs[np.repeat(rows.starts[places], sizes) + count_from_zero(sizes)]
    corpus_of = self._plan.corpus_of(numbers[chosen])
    return assemble([pairs], Rows(chosen, sizes), self.shape, corpus_of)

  def _make_window(self, number: int) -> tuple[EncodedPairs, np.ndarray, Rows]:
    """Returns the pairs of a window, varied, their numbers in the plan, and their rows.

    Very rarely, there are too many rows. Then the pairs stay as planned, in the planned rows.
    """
    window = self._vary(number)
    packing = self._pack(window.varied)
    if packing.num_rows <= self.real * self.shape.rows:
      rows = packing.deal(np.arange(packing.num_rows), self._seed, number)
      return EncodedPairs(*window.varied, {}), window.numbers, rows
    rows = Rows(np.arange(len(window.numbers)), window.sizes)
    return EncodedPairs(*window.planned, {}), window.numbers, rows

  def _pack(self, sides: Sequence[Sentences]) -> Packing:
    source, target = sides
    return Packing(source.lengths, target.lengths, *self.shape[1:])

  def _vary(self, window: int) -> _Window:
    steps = range(window * self.planned, (window + 1) * self.planned)
    dealt = [self._plan.deal(step) for step in steps]
    pairs = np.concatenate([rows.pairs for rows, _ in dealt])
    rounds = np.concatenate([numbers for _, numbers in dealt])
    keys = np.array([[2 * self._seed], [2 * self._seed + 1]], np.uint64)
    for part in (rounds, pairs):
      keys = mix(keys) + part.astype(np.uint64)
    keys = mix(keys)
    first = 0
    places = []
    parts = []
    for corpus in self._plan.corpora:
      place = np.flatnonzero((pairs >= first) & (pairs < first + len(corpus)))
      if len(place):
        read = [
          side.select(pairs[place] - first) for side in (corpus.source, corpus.target)
        ]
        parts.append([*read, *self._vary_corpus(read, keys[:, place])])
        places.append(place)
      first += len(corpus)
    in_plan = np.argsort(np.concatenate(places))
    sides = [take(of_corpora, in_plan) for of_corpora in zip(*parts, strict=True)]
    sizes = np.concatenate([rows.sizes for rows, _ in dealt])
    return _Window(sides[:2], sides[2:], pairs, sizes)

  def _vary_corpus(
    self, read: Sequence[Sentences], keys: np.ndarray
  ) -> list[Sentences]:
    """Returns both sides of pairs of one corpus, varied; a side that is too long stays as read.

    What a variation makes of both sides, such as paragraphs, counts as read if both are short.
    """
    most = (
      self.shape.target_length
    )  # data.max_length, the most that any sentence may have
    sides = read
    for vary in self._variations:
      before = sides
      sides = vary(*sides, keys)
      if sides[0] is not before[0] and sides[1] is not before[1]:
        short = np.maximum(sides[0].lengths, sides[1].lengths) <= most
        read = sides = [_choose(short, *both) for both in zip(sides, read, strict=True)]
    both_sides = zip(sides, read, strict=True)
    return [_choose(side.lengths <= most, side, other) for side, other in both_sides]


def _choose(first: np.ndarray, one: Sentences, other: Sentences) -> Sentences:
  """Returns the sentences of `one` where `first` is True, and of `other` elsewhere."""
  return take([one, other], np.arange(len(one)) + np.where(first, 0, len(one)))
