"""Likelihoods of given translations by a model: teacher forcing, all positions at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.batch import BOS_ID, PAD_ID
from transformer.decoding.model_search import mean_probability
from transformer.decoding.translator import padded_length
from transformer.model.transformer import Transformer
from transformer.ops.linear import logits


def forced(source_BS, target_BT) -> tuple[jax.Array, ...]:
  """Returns the Transformer's arguments for padded ids of texts and translations to be forced."""
  real_BS, real_BT = source_BS != PAD_ID, target_BT != PAD_ID

  def positions(tokens):
    return jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)

  before_BT = jnp.pad(target_BT, ((0, 0), (1, 0)), constant_values=BOS_ID)[:, :-1]
  return (source_BS, real_BS.astype(jnp.int32), positions(source_BS),
          before_BT, real_BT.astype(jnp.int32), positions(target_BT))


def pair_batches(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]],
                 chosen: Iterable[int], most: tuple[int, int], batch_size: int
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
    longest = max(len(sources[index]), len(targets[index]))
    buckets.setdefault(padded_length(longest, most[1]), []).append(index)
  for length, bucket in sorted(buckets.items()):
    for first in range(0, len(bucket), batch_size):
      rows = bucket[first:first + batch_size]
      sides = [np.full((batch_size, min(length, limit)), PAD_ID, np.int32) for limit in most]
      for side, lines in zip(sides, (sources, targets), strict=True):
        for row, index in enumerate(rows):
          side[row, :len(lines[index])] = lines[index]
      yield rows, *sides


def make_scorer(models: Sequence[Transformer], by_token: bool = False) -> Callable[..., jax.Array]:
  """Builds the scorer of a batch, with the mean of the models' probabilities of each token.

  It is a pure function (params of each model, source_BS, target_BT) -> float32 [B], the
  log-probabilities of the targets; or [B, T], those of their tokens, zero for padding.
  """
  def score(params, source_BS, target_BT):
    batch = forced(source_BS, target_BT)
    log_probs = [jax.nn.log_softmax(logits(*model.apply({'params': own}, *batch)))
                 for model, own in zip(models, params, strict=True)]
    chosen_BT = jnp.take_along_axis(mean_probability(log_probs), target_BT[..., None], -1)[..., 0]
    chosen_BT = chosen_BT * (target_BT != PAD_ID)
    return chosen_BT if by_token else jnp.sum(chosen_BT, axis=1)

  return score
