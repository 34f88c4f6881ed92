"""Batches of sentences and of sentence pairs: limits of lengths, buckets and padding."""

from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import Config
from transformer.data.batch import EOS_ID, PAD_ID, Batch
from transformer.errors import UserError

_SHORTEST_BUCKET = 16
# Token ids of sources and of targets.
Pairs = tuple[list[list[int]], list[list[int]]]


def padded_length(length: int, max_length: int) -> int:
  """Returns `length` rounded up to a power of two, at most `max_length`, so few lengths occur."""
  return min(max(_SHORTEST_BUCKET, 1 << (length - 1).bit_length()), max_length)


def max_lengths(config: Config) -> tuple[int, int]:
  """Returns the maximum tokens of a source and of a translation in a search, EOS included."""
  return config.data.max_length, config.data.max_length + config.decode.max_extra_length


def truncated(ids: Sequence[int], length: int) -> list[int]:
  """Returns ids with EOS appended, truncated to at most `length` tokens, EOS included."""
  return [*ids[: length - 1], EOS_ID]


def encode_pairs(vocabulary, sources: Sequence[str], targets: Sequence[str]) -> Pairs:
  """Returns the ids of sources and of targets in a `RunVocabulary`, with EOS."""
  source_ids = [[*ids, EOS_ID] for ids in vocabulary.source.encode_batch(sources)]
  target_ids = [[*ids, EOS_ID] for ids in vocabulary.target.encode_batch(targets)]
  if len(sources) != len(targets):
    raise UserError(
      f'sources and targets must have the same number of lines; got {len(sources)} sources and '
      f'{len(targets)} targets'
    )
  return source_ids, target_ids


def check_lengths(pairs: Pairs, limits: tuple[int, int]):
  """Raises `UserError` if a text is longer than a search allows."""
  for kind, side, limit in zip(('source', 'reference'), pairs, limits, strict=True):
    for line_number, ids in enumerate(side, 1):
      if len(ids) > limit:
        raise UserError(
          f'line {line_number} of the {kind} has {len(ids)} tokens, more than the limit of a '
          f'search, {limit}; split it'
        )


def padded(sentences: Sequence[Sequence[int]], length: int, rows: int) -> np.ndarray:
  """Returns the ids of sentences as int32 [rows, length], padded with `PAD_ID`."""
  tokens = np.full((rows, length), PAD_ID, np.int32)
  for row, ids in enumerate(sentences):
    tokens[row, : len(ids)] = ids
  return tokens


def batched(keyed: Iterable[tuple], size: int) -> Iterator[tuple]:
  """Yields (key, at most `size` items of this key); keys and items keep their order."""
  groups = {}
  for key, item in keyed:
    groups.setdefault(key, []).append(item)
  for key, items in groups.items():
    for first in range(0, len(items), size):
      yield key, items[first : first + size]


def pair_batches(
  pairs: Pairs, limits: tuple[int, int], batch_size: int
) -> Iterator[tuple]:
  """Yields batches of `batch_size` pairs of similar length: their indices, sources and targets.

  The array shapes of a pair depend only on the pair, `limits` and `batch_size`. So its results do
  not depend on the other pairs. Unused rows are padding. `limits` are the limits of a source and of
  a target; pairs with a longer side are skipped.
  """
  sources, targets = pairs
  limit_S, limit_T = limits
  keyed = []
  for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
    if len(source) <= limit_S and len(target) <= limit_T:
      keyed.append((padded_length(max(len(source), len(target)), limit_T), index))
  for length, rows in batched(sorted(keyed), batch_size):
    source_BS = padded(
      [sources[index] for index in rows], min(length, limit_S), batch_size
    )
    target_BT = padded([targets[index] for index in rows], length, batch_size)
    yield rows, source_BS, target_BT


def encoder_inputs(tokens_BS) -> tuple[jax.Array, ...]:
  """Returns the encoder's arguments for padded ids of sentences, one per row."""
  positions_S = jnp.arange(tokens_BS.shape[1], dtype=jnp.int32)
  return (
    tokens_BS,
    (tokens_BS != PAD_ID).astype(jnp.int32),
    jnp.broadcast_to(positions_S, tokens_BS.shape),
  )


def batch_from_padded(source_BS, target_BT) -> Batch:
  """Returns padded ids of texts and their translations as a batch, one pair per row."""
  return Batch(*encoder_inputs(source_BS), *encoder_inputs(target_BT))


def batch_from_pairs(pairs: Pairs, limits: tuple[int, int]) -> Batch:
  """Returns the ids of pairs, none longer than `limits`, as a batch, one pair per row."""
  sides = []
  for ids, limit in zip(pairs, limits, strict=True):
    length = padded_length(max(map(len, ids), default=1), limit)
    sides.append(padded(ids, length, len(ids)))
  return jax.tree.map(np.asarray, batch_from_padded(*sides))
