"""Batches of pairs, and the decoder's input for given translations (teacher forcing)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import BOS_ID, PAD_ID
from transformer.decoding.translator import padded_length


class PairBatch(NamedTuple):
  """Pairs that are computed together.

  Attributes:
    chosen: the indices of the pairs, one for each row; rows beyond them are padding.
    source_BS: padded ids with their end tokens.
    target_BT: the same of the translations.
  """

  chosen: list[int]
  source_BS: np.ndarray
  target_BT: np.ndarray


def forced(source_BS, target_BT) -> tuple[jax.Array, ...]:
  """Returns the arguments of the Transformer that give a translation to the decoder.

  Args:
    source_BS: padded ids with their end tokens.
    target_BT: the same of the translations. The decoder's input is shifted right: the begin token,
      and then all tokens but the last.
  """
  real_BS, real_BT = source_BS != PAD_ID, target_BT != PAD_ID

  def positions(tokens):
    return jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)

  before_BT = jnp.pad(target_BT, ((0, 0), (1, 0)), constant_values=BOS_ID)[:, :-1]
  return (source_BS, real_BS.astype(jnp.int32), positions(source_BS),
          before_BT, real_BT.astype(jnp.int32), positions(target_BT))


def pair_batches(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]],
                 asked: Iterable[int], most: tuple[int, int],
                 batch_size: int) -> Iterator[PairBatch]:
  """Yields batches of pairs of similar length, the shortest first.

  The shapes of a pair's arrays depend only on the pair and on the numbers that are given. So what
  is computed for a pair does not depend on the others.

  Args:
    sources: the ids of each source, the end token included.
    targets: the ids of each translation.
    asked: the indices of the pairs, none longer than `most`.
    most: the most tokens of a source and of a target; the first number is not above the second.
    batch_size: the number of rows.
  """
  buckets: dict[int, list[int]] = {}
  for index in asked:
    longest = max(len(sources[index]), len(targets[index]))
    buckets.setdefault(padded_length(longest, most[1]), []).append(index)
  for length, members in sorted(buckets.items()):
    for first in range(0, len(members), batch_size):
      chosen = members[first:first + batch_size]
      sides = [np.full((batch_size, min(length, limit)), PAD_ID, np.int32) for limit in most]
      for side, lines in zip(sides, (sources, targets), strict=True):
        for row, index in enumerate(chosen):
          side[row, :len(lines[index])] = lines[index]
      yield PairBatch(chosen, *sides)
