"""Augmentations, which change training sentences each time that they are used.

`data.augmentations` names custom functions; docs/plugins.md has an example. An augmented pair
depends only on the original text and on its keys, which are functions of (seed, round, pair). So
a resumed run has the same batches as an uninterrupted one.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from transformer import plugins
from transformer.data.batch import Batch
from transformer.data.batches.packing import Packing
from transformer.data.batches.shuffling import mix_bits
from transformer.data.batches.training_batches import (
  BatchesByStep,
  TrainingBatches,
  assemble_batch,
  gather_pairs,
  gather_sentences,
  locate,
  pack_corpora,
)
from transformer.data.config import DataConfig
from transformer.data.encoding import EncodedPairs, Sentences
from transformer.data.vocabulary.vocabularies import RunVocabulary
from transformer.data.vocabulary.vocabulary import Vocabulary
from transformer.errors import UserError

# (sources, targets, uint64 keys of both [2, pairs]) -> augmented (sources, targets), same order.
Augment = Callable[[Sentences, Sentences, np.ndarray], tuple[Sentences, Sentences]]

# Planned batches whose pairs are augmented and packed together.
_PLANNED = 64
# Spare rows of each window, as a fraction of the rows that the first window needs.
_SPARE = 0.01


def uniform(keys: np.ndarray) -> np.ndarray:
  """Returns a float64 in [0, 1) for each key, for sampling a fraction of the sentences."""
  return (keys >> np.uint64(11)) * 2.0**-53


def replace_sentences(
  sentences: Sentences, chosen: np.ndarray, texts: Sequence[str], vocabulary: Vocabulary
) -> Sentences:
  """Returns sentences with those at the ascending indices `chosen` replaced by `texts`."""
  changed = Sentences.from_lists_with_eos(vocabulary.encode_batch(texts))
  indices = np.arange(len(sentences))
  indices[chosen] = len(sentences) + np.arange(len(chosen))
  return gather_sentences([sentences, changed], indices)


def load_augmentations(data: DataConfig, vocabulary: RunVocabulary) -> list[tuple]:
  """Returns the augmentations in `data.augmentations`, each as (name, `Augment`)."""
  return [
    (plugins.name_of(part), plugins.build(part, 'augmentation', data, vocabulary))
    for part in data.augmentations
  ]


def augment_pairs(
  augmentations: Sequence[tuple], pairs: EncodedPairs, keys: np.ndarray, longest: int
) -> EncodedPairs:
  """Returns pairs, augmented with their uint64 keys [2, pairs].

  An augmentation that makes a side longer than `longest` tokens is skipped for this pair.
  """
  sides = (pairs.source, pairs.target)
  for place, (name, augment) in enumerate(augmentations):
    # With equal keys, augmentations that sample alike would change the same sentences.
    augment_keys = mix_bits(keys + np.uint64(place))
    with plugins.as_user_error(f'the augmentation {name} failed'):
      augmented = augment(*sides, augment_keys)
      sizes = [len(side) for side in augmented if isinstance(side, Sentences)]
    if sizes != [len(pairs)] * 2:
      raise UserError(
        f'the augmentation {name} must return two Sentences with the same number of sentences '
        'as its arguments'
      )
    is_long = np.maximum(augmented[0].lengths, augmented[1].lengths) > longest
    chosen = np.arange(len(pairs)) + len(pairs) * is_long
    sides = [
      gather_sentences(both, chosen) for both in zip(augmented, sides, strict=True)
    ]
  return EncodedPairs(*sides, {})


class _Window(NamedTuple):
  """Augmented pairs, the index of each pair's corpus, and the packing of the pairs."""

  pairs: EncodedPairs
  corpus_ids: np.ndarray | None
  packing: Packing


class AugmentedBatches(BatchesByStep):
  """The batches of a plan by step, with augmented sentences.

  Augmented pairs differ in length, so the planned rows no longer fit. A window is a fixed number of
  planned batches, whose pairs are repacked into `batches_per_window` batches. So the batch of
  a step depends on only one window. Very rarely, a window needs more rows than these batches
  have; the surplus rows are dropped.
  """

  def __init__(self, plan: TrainingBatches, augmentations: Sequence[tuple], seed: int):
    self.shape = plan.shape
    self.plan = plan
    self._augmentations = augmentations
    self._seed = seed
    self._window = functools.lru_cache(maxsize=2)(self._make_window)
    self.planned_per_window = min(_PLANNED, plan.batches_in_epoch)
    rows = self._window(0).packing.num_rows
    self.batches_per_window = math.ceil(rows * (1 + _SPARE) / self.shape.rows)

  def __getitem__(self, step: int) -> Batch:
    number, index = divmod(step, self.batches_per_window)
    window = self._window(number)
    places = np.arange(index, window.packing.num_rows, self.batches_per_window)
    rows = window.packing.shuffled_rows(places[: self.shape.rows], self._seed, number)
    corpus_ids = None if window.corpus_ids is None else window.corpus_ids[rows.pairs]
    return assemble_batch([window.pairs], rows, self.shape, corpus_ids)

  def _make_window(self, number: int) -> _Window:
    first = number * self.planned_per_window
    collected = [
      self.plan.packed_rows(step)
      for step in range(first, first + self.planned_per_window)
    ]
    pairs = np.concatenate([rows.pairs for rows, _ in collected])
    rounds = np.concatenate([earlier for _, earlier in collected])
    owner, _ = locate(self.plan.corpora, pairs)
    by_corpus = np.argsort(owner, kind='stable')
    pairs = pairs[by_corpus]
    keys = np.array([[2 * self._seed], [2 * self._seed + 1]], np.uint64)
    for part in (rounds[by_corpus], pairs):
      keys = mix_bits(keys) + part.astype(np.uint64)
    encoded = gather_pairs(self.plan.corpora, pairs)
    augmented = augment_pairs(
      self._augmentations, encoded, mix_bits(keys), self.shape.target_length
    )
    packing = pack_corpora([augmented], self.shape)
    return _Window(augmented, self.plan.ids_of_pairs(pairs), packing)
