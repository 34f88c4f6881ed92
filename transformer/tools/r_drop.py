"""R-Drop (Liang et al., 2021, "R-Drop: Regularized Dropout for Neural Networks"), an objective.

  --config.train.objective="('transformer.tools.r_drop:r_drop', 5.0)"

Each sentence has two forward passes with different dropout; the loss penalizes their divergence.
"""

import jax
import jax.numpy as jnp
from absl import logging

from transformer.errors import UserError
from transformer.ops.losses import chunked_loss, token_losses
from transformer.training.objective import (
  Objective,
  add_auxiliary_losses,
  duplicate_batch,
  forward,
)


def r_drop(config, alpha: float = 5.0) -> Objective:
  """Returns the objective: cross entropy plus divergence of two passes, weighted by the paper's α.

  The default, 5, is the paper's value for translation.
  """
  check_alpha(config.model, alpha)
  smoothing = config.train.label_smoothing
  function = with_divergence(
    lambda y, targets, _: token_losses(y, targets, smoothing), alpha
  )

  def loss(model, params, batch, dropout_key=None, *, frozen=(), num_row_shards=1):
    batch, weights_BT = duplicate_batch(batch)
    x_BTD, output_ND, aux_losses = forward(model, params, batch, dropout_key)
    sums = chunked_loss(
      function,
      x_BTD,
      output_ND,
      weights_BT,
      batch.target_tokens,
      num_row_shards=num_row_shards,
    )
    return add_auxiliary_losses(sums, aux_losses)

  return Objective(loss, passes=2)


def check_alpha(model, alpha: float):
  """Raises `UserError` if α is out of range; warns without dropout, since both passes are equal."""
  if not 0.0 < alpha < float('inf'):
    raise UserError(f'alpha of R-Drop must be above 0 and finite; got {alpha}')
  if not any((model.dropout, model.attention_dropout, model.activation_dropout)):
    logging.warning(
      'R-Drop compares two passes that differ by dropout, so at least one of model.dropout, '
      'model.attention_dropout and model.activation_dropout must be above 0; set model.dropout'
    )


def with_divergence(function, alpha: float):
  """Adds α / 4 · (KL(p‖q) + KL(q‖p)) to a loss for `chunked_loss` (equation 4).

  Each position p has its twin q: twins are rows 2i and 2i + 1. The paper's loss is the sum over
  both.
  """

  def diverging(logits, by_position, shared_arrays):
    loss, nll = function(logits, by_position, shared_arrays)
    log_probs = jax.nn.log_softmax(logits)
    difference = log_probs - _twin(log_probs)
    to_twin = jnp.sum(jnp.exp(log_probs) * difference, axis=-1)
    return loss + alpha / 4.0 * (to_twin + _twin(to_twin)), nll

  return diverging


def _twin(x):
  """Swaps the rows of each pair."""
  pairs = x.reshape(x.shape[0] // 2, 2, *x.shape[1:])
  return jnp.flip(pairs, axis=1).reshape(x.shape)
