"""Likelihoods of given translations by a model."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from absl import logging

from transformer.data.batch import PAD_ID
from transformer.decoding.model_search import mean_probability
from transformer.decoding.pairs import encode_pairs, forced, longest, pair_batches, too_long
from transformer.model.building import Model
from transformer.ops.linear import logits
from transformer.runs.loading import Run, check_finite

_LINES_SHOWN = 5


class Likelihood(NamedTuple):
  """The likelihood of a translation, whose end token counts."""

  log_prob: float | None  # a natural logarithm; None if the pair was too long
  tokens: int
  pieces: tuple[tuple[str, float], ...] = ()  # with their logarithms, if they were wanted


def score_with(
  members: Sequence[Run], sources: Sequence[str], targets: Sequence[str], by_token: bool = False
) -> list[Likelihood]:
  """Returns the likelihood of each target by runs, with its pieces if `by_token`.

  A pair with a side that is longer than in a search is not scored; a warning names its line.

  Raises:
    UserError: a log-probability is not finite.
  """
  run = members[0]
  most = longest(run.config)
  encoded = encode_pairs(run.vocabulary, sources, targets)
  likelihoods = [Likelihood(None, len(ids)) for ids in encoded[1]]
  if longer := too_long(encoded, most):
    more = ['…'] * (len(longer) > _LINES_SHOWN)
    logging.warning(
      '%d lines are too long and get nan: %s',
      len(longer),
      ', '.join([*longer.values()][:_LINES_SHOWN] + more),
    )
  scorer = make_scorer(tuple(member.model for member in members), by_token)
  params = tuple(member.params for member in members)
  chosen = [index for index in range(len(likelihoods)) if index not in longer]
  for indices, *sides in pair_batches(*encoded, chosen, most, run.config.decode.batch_size):
    log_probs = jax.device_get(scorer(params, *sides))
    for index, log_prob in zip(indices, log_probs, strict=False):
      ids = encoded[1][index]
      scores = log_prob[: len(ids)].tolist() if by_token else []
      likelihoods[index] = Likelihood(
        math.fsum(scores) if by_token else float(log_prob),
        len(ids),
        tuple(zip(map(run.vocabulary.target.piece, ids), scores, strict=False)),
      )
  check_finite(members, (pair.log_prob or 0.0 for pair in likelihoods), itertools.count(1))
  return likelihoods


@functools.lru_cache(maxsize=8)
def make_scorer(models: tuple[Model, ...], by_token: bool = False) -> Callable[..., jax.Array]:
  """Builds the scorer of a batch, with the mean of the models' probabilities of each token.

  It is a compiled function (params of each model, source_BS, target_BT) -> float32 [B], the
  log-probabilities of the targets; or [B, T], those of their tokens, zero for padding.
  """

  @jax.jit
  def score(params, source_BS, target_BT):
    batch = forced(source_BS, target_BT)
    log_probs = [
      jax.nn.log_softmax(logits(*model.apply({'params': own}, *batch)))
      for model, own in zip(models, params, strict=True)
    ]
    chosen_BT = jnp.take_along_axis(mean_probability(log_probs), target_BT[..., None], -1)[..., 0]
    chosen_BT = chosen_BT * (target_BT != PAD_ID)
    return chosen_BT if by_token else jnp.sum(chosen_BT, axis=1)

  return score
