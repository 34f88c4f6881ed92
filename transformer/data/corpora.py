"""Opens, encodes, counts and fingerprints the corpora of a run."""

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from absl import logging

from transformer.data.batch import Batch
from transformer.data.batches.augmentation import AugmentedBatches, load_augmentations
from transformer.data.batches.training_batches import (
  BatchesByStep,
  TrainingBatches,
  batch_shape,
  validation_batches,
)
from transformer.data.config import DataConfig
from transformer.data.encoded_cache import load_or_encode
from transformer.data.encoding import encode_for_validation, filter_for_training
from transformer.data.text.sources import Corpus, open_corpus
from transformer.data.vocabulary.vocabularies import RunVocabulary

_CHUNK = 20_000  # pairs per read
_MAX_DROPPED = 0.05  # warns if a larger fraction of the pairs is dropped
_PLACES = 10_000  # maximum number of places that a sample of the pairs is read from


class Corpora(NamedTuple):
  """The open corpora of a run, keyed by `train/NAME`, and as `DataConfig.valid_sets`."""

  train: Mapping[str, Corpus]
  valid: Mapping[str, Corpus]

  def fingerprints(self) -> dict[str, str]:
    """Returns the SHA-256 of each corpus, by key."""
    corpora = {**self.train, **self.valid}
    return {key: corpus.fingerprint for key, corpus in corpora.items()}

  def training_text(self, max_pairs: int) -> Iterator[str]:
    """Yields training sentences in the order of the corpora, each source before its target.

    If there are more than `max_pairs` pairs, yields a fixed sample of about `max_pairs`: short runs
    of pairs from evenly spaced places.
    """
    total = sum(map(len, self.train.values()))
    places = min(max_pairs, _PLACES)
    length = max_pairs // places
    firsts = [place * total // places for place in range(places)]
    if total <= max_pairs:
      length = _CHUNK
      firsts = range(0, total, _CHUNK)
    for start in firsts:  # Indices into the concatenated corpora.
      stop = start + length
      for corpus in self.train.values():
        pairs = corpus[max(start, 0) : max(stop, 0)]
        yield from itertools.chain.from_iterable(pairs)
        start -= len(corpus)
        stop -= len(corpus)


class RunBatches(NamedTuple):
  """The batches of a run, and the pair counts of each corpus."""

  batches: BatchesByStep
  valid_batches: dict[str, list[Batch]]
  counts: dict[str, dict[str, int]]


def open_corpora(config: DataConfig) -> Corpora:
  """Opens the training and validation corpora."""
  return Corpora(
    {f'train/{name}': open_corpus(config, name) for name in config.train},
    {key: open_corpus(config, name) for key, name in config.valid_sets.items()},
  )


def make_run_batches(
  config: DataConfig,
  corpora: Corpora,
  vocabulary: RunVocabulary,
  tokens_per_batch: int,
  seed: int,
  write_cache: bool = True,
) -> RunBatches:
  """Encodes and packs the corpora of a run; `write_cache` caches the encoded text on disk.

  Raises `UserError` if no training pair is left.
  """
  train = {}
  for key, corpus in corpora.train.items():
    sides = load_or_encode(corpus, vocabulary, write_cache)
    train[key] = filter_for_training(*sides, config.max_length, config.max_length_ratio)
  valid = {
    key: encode_for_validation(corpus, vocabulary, config.max_length)
    for key, corpus in corpora.valid.items()
  }
  counts = {key: pairs.counts for key, pairs in (train | valid).items()}
  for key, numbers in counts.items():
    parts = [
      f'{name} {count:,}' for name, count in numbers.items() if count or name == 'kept'
    ]
    logging.info('pairs of %s: %s', key, ', '.join(parts))
  total = sum(map(len, corpora.train.values()))
  dropped = total - sum(map(len, train.values()))
  if dropped > _MAX_DROPPED * total:
    logging.warning(
      '%.1f%% of the training pairs are dropped; docs/data.md shows how to list them',
      100 * dropped / total,
    )
  pairs = list(train.values())
  shape = batch_shape(tokens_per_batch, config.max_length, pairs)
  batches = TrainingBatches(pairs, config.corpus_passes, shape, seed)
  if augmentations := load_augmentations(config, vocabulary):
    batches = AugmentedBatches(batches, augmentations, seed)
  valid_batches = {
    key: validation_batches(scored, shape) for key, scored in valid.items()
  }
  return RunBatches(batches, valid_batches, counts)
