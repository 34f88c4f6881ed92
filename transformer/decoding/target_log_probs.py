"""Log-probabilities of given translations under models."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from transformer.data.batch import PAD_ID
from transformer.decoding.batching import (
  batch_from_padded,
  encode_pairs,
  max_lengths,
  pair_batches,
)
from transformer.decoding.decoder_search import log_mean_probability
from transformer.ops.linear import logits
from transformer.runs.loading import Run, check_finite_scores
from transformer.training.objective import model_inputs


def token_log_probs(
  members: Sequence[Run], sources: Sequence[str], targets: Sequence[str]
) -> list[list]:
  """Returns for each target its pieces with their log-probabilities, EOS last.

  The probability of a token is the mean over the runs. A pair with a side that is too long for a
  search has no pieces; a warning logs the number of such pairs.

  Raises:
    UserError: a log-probability is not finite.
  """
  run = members[0]
  pairs = encode_pairs(run.vocabulary, sources, targets)
  _, target_ids = pairs
  models = tuple(member.model for member in members)
  params = [member.params for member in members]
  pieces = [[] for _ in target_ids]
  batches = pair_batches(pairs, max_lengths(run.config), run.config.decode.batch_size)
  for indices, source_BS, target_BT in batches:
    log_probs_BT = np.asarray(
      score_tokens(models, params, source_BS, target_BT)
    ).tolist()
    for index, log_probs_T in zip(indices, log_probs_BT, strict=False):
      names = map(run.vocabulary.target.piece, target_ids[index])
      pieces[index] = list(zip(names, log_probs_T, strict=False))
  num_too_long = pieces.count([])
  if num_too_long:
    logging.warning('%d of %d pairs are too long to score', num_too_long, len(pieces))
  totals = (sum(log_prob for _, log_prob in line) for line in pieces)
  check_finite_scores(members, totals)
  return pieces


@jax.jit(static_argnums=0)
def score_tokens(models: tuple, params, source_BS, target_BT) -> jax.Array:
  """Returns the log-probabilities of the targets' tokens, float32 [B, T], zero at padding.

  They are logarithms of the models' mean probability; `params` has the parameters of each model.
  """
  batch = model_inputs(batch_from_padded(source_BS, target_BT))
  log_probs = [
    jax.nn.log_softmax(logits(*model.apply({'params': model_params}, *batch)))
    for model, model_params in zip(models, params, strict=True)
  ]
  mean_BTN = log_mean_probability(log_probs)
  chosen_BT = jnp.take_along_axis(mean_BTN, target_BT[..., None], -1)[..., 0]
  return chosen_BT * (target_BT != PAD_ID)
