"""Texts with given translations, as arrays for teacher forcing: all positions at once."""

from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer.config import Config
from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID, Batch
from transformer.errors import UserError

_SHORTEST_BUCKET = 16


def padded_length(length: int, most: int) -> int:
  """Returns a power of two that has room for `length` tokens, or `most`, so that few differ."""
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), most)


def longest(config: Config) -> tuple[int, int]:
  """Returns the most tokens of a source and of a translation by a search, with end tokens."""
  return config.data.max_length, config.data.max_length + config.decode.max_extra_length


def encode_pairs(
  vocabulary, sources: Sequence[str], targets: Sequence[str]
) -> list[list[list[int]]]:
  """Returns the ids of sources and those of targets, with end tokens."""
  encoded = [
    [[*ids, EOS_ID] for ids in language.encode_batch(side)]
    for language, side in ((vocabulary.source, sources), (vocabulary.target, targets))
  ]
  if len(sources) != len(targets):
    raise UserError(
      f'each source needs a target; there are {len(sources)} sources and {len(targets)} targets'
    )
  return encoded


def too_long(pairs: Sequence[Sequence[Sequence[int]]], most: tuple[int, int]) -> dict[int, str]:
  """Returns the indices of pairs that are longer than in a search, and what people call them."""
  return {
    index: f'line {index + 1} of the {kind} ({len(ids)} tokens, at most {limit})'
    for index, pair in enumerate(zip(*pairs, strict=True))
    for kind, ids, limit in zip(('source', 'reference'), pair, most, strict=True)
    if len(ids) > limit
  }


def padded(sentences: Sequence[Sequence[int]], length: int, rows: int) -> np.ndarray:
  """Returns the ids of sentences as int32 [rows, length]."""
  tokens = np.full((rows, length), PAD_ID, np.int32)
  for row, ids in enumerate(sentences):
    tokens[row, : len(ids)] = ids
  return tokens


def pair_batches(
  sources: Sequence[Sequence[int]],
  targets: Sequence[Sequence[int]],
  chosen: Iterable[int],
  most: tuple[int, int],
  batch_size: int,
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
  """Yields batches of `batch_size` pairs of similar length: their indices, sources and targets.

  The shapes of a pair's arrays depend only on the pair and on the numbers that are given. So what
  is computed for a pair does not depend on the others. Rows beyond the pairs are padding.

  Args:
    sources, targets: the ids of each text, the end token included.
    chosen: the indices of the pairs, none longer than `most`.
    most: the most tokens of a source and of a target; the first number is not above the second.
  """
  buckets: dict[int, list[int]] = {}
  for index in chosen:
    length = max(len(sources[index]), len(targets[index]))
    buckets.setdefault(padded_length(length, most[1]), []).append(index)
  for length, bucket in sorted(buckets.items()):
    for first in range(0, len(bucket), batch_size):
      rows = bucket[first : first + batch_size]
      yield (
        rows,
        *(
          padded([lines[index] for index in rows], min(length, limit), batch_size)
          for lines, limit in zip((sources, targets), most, strict=True)
        ),
      )


def rows_of(tokens_BS) -> tuple[jax.Array, ...]:
  """Returns the encoder's arguments for padded ids of sentences, one in each row."""
  positions_S = jnp.arange(tokens_BS.shape[1], dtype=jnp.int32)
  return (
    tokens_BS,
    (tokens_BS != PAD_ID).astype(jnp.int32),
    jnp.broadcast_to(positions_S, tokens_BS.shape),
  )


def forced(source_BS, target_BT) -> tuple[jax.Array, ...]:
  """Returns the Transformer's arguments for padded ids of texts and translations to be forced."""
  _, *segments_and_positions = rows_of(target_BT)
  before_BT = jnp.pad(target_BT, ((0, 0), (1, 0)), constant_values=BOS_ID)[:, :-1]
  return *rows_of(source_BS), before_BT, *segments_and_positions


def as_batch(pairs: Sequence[Sequence[Sequence[int]]], most: tuple[int, int]) -> Batch:
  """Returns the ids of pairs, none longer than `most`, as a batch with a row each."""
  source_BS, target_BT = (
    padded(side, padded_length(max(map(len, side), default=1), limit), len(side))
    for side, limit in zip(pairs, most, strict=True)
  )
  inputs = forced(source_BS, target_BT)
  return Batch(*map(np.asarray, (*inputs[:3], target_BT, *inputs[4:])))


def warn_of_cut(cut: Sequence[bool], max_length: int):
  """Warns how many sources were cut, if any."""
  if any(cut):
    logging.warning(
      '%d of %d sources were longer than data.max_length=%d tokens and were cut',
      sum(cut),
      len(cut),
      max_length,
    )
