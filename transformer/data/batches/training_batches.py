"""Training and validation batches; training batch n is a function of (data, seed, n)."""

import collections
import fractions
import itertools
import math
from collections.abc import Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from transformer.data.batch import Batch
from transformer.data.batches.packing import PackedRows, Packing
from transformer.data.encoding import EncodedPairs, Sentences, concatenated_ranges
from transformer.errors import UserError

_BATCHES_AHEAD = 8  # batches that are prefetched


class BatchShape(NamedTuple):
  """The shape of every batch of a run."""

  rows: int
  source_length: int
  target_length: int


def batch_shape(
  tokens_per_batch: int, max_length: int, corpora: Sequence[EncodedPairs]
) -> BatchShape:
  """Returns the shape of a run's batches of `tokens_per_batch` target positions.

  If the sources have more tokens than the targets, source rows are longer in proportion.
  """
  source = sum(pairs.source.lengths.sum() for pairs in corpora)
  target = sum(pairs.target.lengths.sum() for pairs in corpora)
  source_length = max_length
  if source > target:
    source_length = 8 * math.ceil(max_length * source / target / 8)
  return BatchShape(tokens_per_batch // max_length, source_length, max_length)


class BatchesByStep:
  """The batches of a run with random access, so a resumed run replays nothing."""

  shape: BatchShape

  def iterate(self, start: int, stop: int) -> Iterator[Batch]:
    """Yields batches `start` … `stop − 1`, prefetched by one thread."""
    thread = ThreadPoolExecutor(1, 'batches')
    ahead = collections.deque()
    try:
      for step in range(start, stop):
        ahead.append(thread.submit(self.__getitem__, step))
        if len(ahead) > _BATCHES_AHEAD:
          yield ahead.popleft().result()
      while ahead:
        yield ahead.popleft().result()
    finally:  # The thread stops after its current batch.
      thread.shutdown(wait=False, cancel_futures=True)


class TrainingBatches(BatchesByStep):
  """The batches of a run by step, from 0: packed, and reshuffled every epoch.

  Batches have `corpus_ids` if there are several corpora, even if only one has passes.

  Attributes:
    corpora: the encoded corpora in use; pairs are indexed over the concatenated corpora.
    batches_in_epoch: number of batches over which the rows of an epoch are spread evenly.
  """

  def __init__(
    self,
    corpora: Sequence[EncodedPairs],
    passes_per_epoch: Sequence[float],
    shape: BatchShape,
    seed: int,
  ):
    """Plans batches over corpora; `passes_per_epoch` has the passes over each corpus."""
    by_passes = {}
    for index, passes in enumerate(passes_per_epoch):
      if passes and len(corpora[index]):
        by_passes.setdefault(passes, []).append(index)
    if not by_passes:
      raise UserError(
        'all training pairs were dropped; see the counts of dropped pairs above, and check '
        'data.max_length and data.max_length_ratio'
      )
    corpus_ids = list(itertools.chain(*by_passes.values()))
    self._corpus_ids = np.array(corpus_ids) if len(corpora) > 1 else None
    self.corpora = [corpora[index] for index in corpus_ids]
    self._cycles = []
    for passes, group in by_passes.items():
      members = [corpora[index] for index in group]
      self._cycles.append(_Cycle(members, passes, shape))
    self.shape = shape
    self._seed = seed
    rows = sum(math.ceil(cycle.rows_in_epoch) for cycle in self._cycles)
    self.batches_in_epoch = math.ceil(rows / shape.rows)

  def __getitem__(self, step: int) -> Batch:
    rows, _ = self.packed_rows(step)
    return assemble_batch(self.corpora, rows, self.shape, self.ids_of_pairs(rows.pairs))

  def ids_of_pairs(self, pairs: np.ndarray) -> np.ndarray | None:
    """Returns the index of each pair's corpus for `Batch.corpus_ids`; None for a single corpus."""
    if self._corpus_ids is None:
      return None
    owner, _ = locate(self.corpora, pairs)
    return self._corpus_ids[owner]

  def packed_rows(self, step: int) -> tuple[PackedRows, np.ndarray]:
    """Returns the packed rows of a step, and the number of earlier uses of each pair's corpus."""
    epoch, index = divmod(step, self.batches_in_epoch)
    empty = np.zeros(0, np.int64)
    collected = [(empty,) * 3]
    first_row = first_pair = 0
    for cycle in self._cycles:
      start = math.floor(epoch * cycle.rows_in_epoch)
      stop = math.floor((epoch + 1) * cycle.rows_in_epoch)
      # Every n-th row of the epoch, so batch sizes differ by at most one row.
      first = start + (index - first_row) % self.batches_in_epoch
      places = np.arange(first, stop, self.batches_in_epoch)
      rounds, places = np.divmod(places, cycle.packing.num_rows)
      for round_number in np.unique(rounds):
        rows = cycle.packing.shuffled_rows(
          places[rounds == round_number], self._seed, int(round_number)
        )
        pairs = first_pair + rows.pairs
        collected.append((pairs, rows.sizes, np.full(len(pairs), round_number)))
      first_row += stop - start
      first_pair += cycle.num_pairs
    pairs, sizes, rounds = map(np.concatenate, zip(*collected, strict=True))
    return PackedRows(pairs, sizes), rounds


class _Cycle:
  """Cycles through the packed rows of all corpora that have the same number of passes, in rounds.

  An epoch takes `passes` times the number of rows and starts where the previous epoch ended. So
  every pair is used equally often, and the first row of an epoch needs no replay of earlier ones.
  """

  def __init__(self, corpora: Sequence[EncodedPairs], passes: float, shape: BatchShape):
    self.packing = pack_corpora(corpora, shape)
    self.num_pairs = sum(map(len, corpora))
    rows = self.packing.num_rows
    # A fraction, because ten times 0.3 must be exactly 3.
    self.rows_in_epoch = rows * fractions.Fraction(passes).limit_denominator(1_000_000)
    if self.rows_in_epoch < 1:
      raise UserError(
        f'data.passes_per_epoch must take at least one row of each corpus; {passes} '
        f'takes none of {rows} rows ({self.num_pairs} pairs)'
      )


def pack_corpora(corpora: Sequence[EncodedPairs], shape: BatchShape) -> Packing:
  """Returns a packing of all pairs; pairs are indexed over the concatenated corpora."""
  source_lengths = np.concatenate([pairs.source.lengths for pairs in corpora])
  target_lengths = np.concatenate([pairs.target.lengths for pairs in corpora])
  return Packing(source_lengths, target_lengths, *shape[1:])


def validation_batches(pairs: EncodedPairs, shape: BatchShape) -> list[Batch]:
  """Packs a validation set deterministically, each pair once; pads the last batch."""
  packing = pack_corpora([pairs], shape)
  rows = np.arange(packing.num_rows)
  return [
    assemble_batch([pairs], packing.shuffled_rows(places, 0), shape)
    for places in np.split(rows, range(shape.rows, len(rows), shape.rows))
  ]


def assemble_batch(
  corpora: Sequence[EncodedPairs],
  rows: PackedRows,
  shape: BatchShape,
  corpus_ids: np.ndarray | None = None,
) -> Batch:
  """Returns a batch with the pairs of some packed rows; the remaining rows are padding.

  `corpus_ids` is the index of each pair's corpus for `Batch.corpus_ids`.
  """
  pairs = gather_pairs(corpora, rows.pairs)
  source = _fill(pairs.source, rows, shape.rows, shape.source_length)
  target = _fill(pairs.target, rows, shape.rows, shape.target_length, corpus_ids)
  return Batch(*source, *target)


def _fill(
  sentences: Sentences,
  rows: PackedRows,
  num_rows: int,
  length: int,
  corpus_ids: np.ndarray | None = None,
) -> np.ndarray:
  """Returns tokens, segments, positions and, if given, `corpus_ids` of one side, by position."""
  lengths = sentences.lengths
  row = np.repeat(np.arange(len(rows.sizes)), rows.sizes)
  used = np.arange(length) < np.bincount(row, lengths, num_rows)[:, None]
  segment = 1 + concatenated_ranges(rows.sizes)
  values = [sentences.tokens, np.repeat(segment, lengths), concatenated_ranges(lengths)]
  if corpus_ids is not None:
    values.append(np.repeat(corpus_ids, lengths))
  arrays = np.zeros((len(values), num_rows, length), np.int32)
  arrays[:, used] = values
  return arrays


def gather_pairs(corpora: Sequence[EncodedPairs], indices: np.ndarray) -> EncodedPairs:
  """Returns some pairs, given their indices in the concatenated corpora."""
  source = gather_sentences([pairs.source for pairs in corpora], indices)
  target = gather_sentences([pairs.target for pairs in corpora], indices)
  return EncodedPairs(source, target, {})


def gather_sentences(sides: Sequence[Sentences], indices: np.ndarray) -> Sentences:
  """Returns some sentences, given their indices in the concatenated collections."""
  owner, offsets = locate(sides, indices)
  order = np.argsort(owner, kind='stable')
  parts = [side.gather(offsets[owner == place]) for place, side in enumerate(sides)]
  return Sentences.concatenate(parts).gather(np.argsort(order))


def locate(
  collections: Sequence[Sized], indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns each index in the concatenated collections as a collection and an index within it."""
  firsts = np.cumsum([0, *map(len, collections)])
  owner = np.searchsorted(firsts, indices, side='right') - 1
  return owner, indices - firsts[owner]
