"""Likelihoods of given translations by a model: teacher forcing, all positions at once."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer.data.batch import BOS_ID, EOS_ID, PAD_ID
from transformer.decoding.model_search import mean_probability
from transformer.decoding.translator import padded_length
from transformer.model.transformer import Transformer
from transformer.ops.linear import logits

_LINES_SHOWN = 5


class Likelihood(NamedTuple):
  """The likelihood of a translation.

  Attributes:
    log_prob: natural logarithm, summed over the tokens, the end token included; None if
      the pair was too long.
    tokens: the number of tokens, the end token included.
    pieces: each token as a piece of the vocabulary, with its logarithm; empty if they were not
      wanted, or the pair was too long.
  """

  log_prob: float | None
  tokens: int
  pieces: tuple[tuple[str, float], ...] = ()


class PairBatch(NamedTuple):
  """Pairs that are computed together, as padded ids with their end tokens."""

  chosen: list[int]  # the index of the pair in each row; rows beyond them are padding
  source_BS: np.ndarray
  target_BT: np.ndarray


def forced(source_BS, target_BT) -> tuple[jax.Array, ...]:
  """Returns the Transformer's arguments that give the decoder a translation, shifted right.

  Both are padded ids with their end tokens.
  """
  real_BS, real_BT = source_BS != PAD_ID, target_BT != PAD_ID

  def positions(tokens):
    return jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)

  before_BT = jnp.pad(target_BT, ((0, 0), (1, 0)), constant_values=BOS_ID)[:, :-1]
  return (source_BS, real_BS.astype(jnp.int32), positions(source_BS),
          before_BT, real_BT.astype(jnp.int32), positions(target_BT))


def pair_batches(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]],
                 chosen: Iterable[int], most: tuple[int, int],
                 batch_size: int) -> Iterator[PairBatch]:
  """Yields batches of pairs of similar length, the shortest first.

  The shapes of a pair's arrays depend only on the pair and on the numbers that are given. So what
  is computed for a pair does not depend on the others.

  Args:
    sources: the ids of each source, the end token included.
    targets: the ids of each translation.
    chosen: the indices of the pairs, none longer than `most`.
    most: the most tokens of a source and of a target; the first number is not above the second.
    batch_size: the number of rows.
  """
  buckets: dict[int, list[int]] = {}
  for index in chosen:
    longest = max(len(sources[index]), len(targets[index]))
    buckets.setdefault(padded_length(longest, most[1]), []).append(index)
  for length, members in sorted(buckets.items()):
    for first in range(0, len(members), batch_size):
      rows = members[first:first + batch_size]
      sides = [np.full((batch_size, min(length, limit)), PAD_ID, np.int32) for limit in most]
      for side, lines in zip(sides, (sources, targets), strict=True):
        for row, index in enumerate(rows):
          side[row, :len(lines[index])] = lines[index]
      yield PairBatch(rows, *sides)


def make_scorer(models: Sequence[Transformer], by_token: bool = False) -> Callable[..., jax.Array]:
  """Builds the scorer of a batch, a pure function on arrays.

  Args:
    models: the models, whose probabilities of each token are averaged.
    by_token: whether the log-probabilities stay apart.

  Returns:
    A function (params of each model, source_BS, target_BT) -> float32 [B]. It takes
    padded ids with their end tokens, and returns the log-probabilities of the targets; or
    [B, T], those of their tokens, zero for padding.
  """
  def score(params, source_BS, target_BT):
    batch = forced(source_BS, target_BT)
    log_probs = [jax.nn.log_softmax(logits(*model.apply({'params': own}, *batch)))
                 for model, own in zip(models, params, strict=True)]
    chosen_BT = jnp.take_along_axis(mean_probability(log_probs), target_BT[..., None], -1)[..., 0]
    chosen_BT = chosen_BT * (target_BT != PAD_ID)
    return chosen_BT if by_token else jnp.sum(chosen_BT, axis=1)

  return score


def score_pairs(models: Sequence[Transformer], params: Sequence, vocabulary,
                texts: tuple[Sequence[str], Sequence[str]], most: tuple[int, int],
                batch_size: int, by_token: bool = False) -> list[Likelihood]:
  """Scores a translation of each source.

  Args:
    models, params: the models, whose probabilities are averaged, and the parameters of each.
    vocabulary: encodes text, by its `source` and its `target`.
    texts: sources, and a translation of each.
    most: the most tokens of a source and of a target, end token included; the first
      number is not above the second.
    batch_size: the number of pairs that are scored together.
    by_token: whether each likelihood has its pieces; their sum is then the log-probability.

  Returns:
    The likelihood of each target. A pair with a longer side is not scored; a warning
    names its line.
  """
  languages = vocabulary.source, vocabulary.target
  encoded = [[[*ids, EOS_ID] for ids in language.encode_batch(lines)]
             for language, lines in zip(languages, texts, strict=True)]
  likelihoods = [Likelihood(None, len(ids)) for ids in encoded[1]]
  too_long = set()
  for side, name, limit in zip(encoded, ('source', 'reference'), most, strict=True):
    longer = [number for number, ids in enumerate(side) if len(ids) > limit]
    too_long.update(longer)
    if longer:
      logging.warning('%d lines of the %s have more than %d tokens and get nan: %s', len(longer),
                      name, limit, ', '.join(f'line {number + 1} ({len(side[number])} tokens)'
                                             for number in longer[:_LINES_SHOWN]))
  scorer = jax.jit(make_scorer(models, by_token))
  chosen = [index for index in range(len(likelihoods)) if index not in too_long]
  for batch in pair_batches(*encoded, chosen, most, batch_size):
    log_probs = jax.device_get(scorer(tuple(params), batch.source_BS, batch.target_BT))
    for index, log_prob in zip(batch.chosen, log_probs, strict=False):
      ids = encoded[1][index]
      scores = log_prob[:len(ids)].tolist() if by_token else []
      likelihoods[index] = Likelihood(
          math.fsum(scores) if by_token else float(log_prob), len(ids),
          tuple(zip(map(vocabulary.target.piece, ids), scores, strict=False)))
  return likelihoods
