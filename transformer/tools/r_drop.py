"""R-Drop (Liang et al., 2021, "R-Drop: Regularized Dropout for Neural Networks"), an objective.

  --config.train.objective="('transformer.tools.r_drop:r_drop', 5.0)"

Each sentence takes two passes with different dropout, and the loss penalises their differences.
"""

import jax.numpy as jnp
from absl import logging

from transformer.errors import UserError
from transformer.ops.losses import Predictions, Term, smoothed_cross_entropy
from transformer.training.objective import Objective, add_losses, forward, twins


def r_drop(config, alpha: float = 5.0) -> Objective:
  """Cross entropy, and the distance between two passes, by the paper's α: 5 for translation."""
  check_alpha(config.model, alpha)
  smoothing = config.train.label_smoothing

  def loss(model, params, batch, dropout_key=None, *, frozen=(), devices=1):
    batch, weights_BT = twins(batch)
    x_BTD, output_ND, losses = forward(model, params, batch, dropout_key)
    cross_entropy = smoothed_cross_entropy(
      x_BTD,
      output_ND,
      batch.target_tokens,
      weights_BT,
      smoothing,
      terms=[twin_term(alpha)],
      devices=devices,
    )
    return add_losses(cross_entropy, losses)

  return Objective(loss, passes=2)


def check_alpha(model, alpha: float):
  """Refuses an α out of range, and warns if no dropout differs between two passes."""
  if not 0.0 < alpha < float('inf'):
    raise UserError(f'alpha of R-Drop must be above 0 and finite; got {alpha}')
  if not any((model.dropout, model.attention_dropout, model.activation_dropout)):
    logging.warning(
      'R-Drop compares two passes that differ by dropout, and there is none; set model.dropout'
    )


def twin_term(alpha: float) -> Term:
  """Returns the term α / 4 · (KL(p‖q) + KL(q‖p)) of each position p and its twin q (equation 4).

  Twins are rows 2i and 2i + 1. The paper's loss is the sum for both.
  """

  def function(predictions: Predictions, by_position, whole):
    distance, gradient = _distance(predictions)
    return alpha / 4.0 * distance, alpha / 2.0 * gradient

  return Term(function)


def _distance(predictions: Predictions):
  """Returns KL(p‖q) + KL(q‖p) for each row p and its twin q, and the gradient by p's logits."""

  def twin(x):
    pairs = x.reshape(x.shape[0] // 2, 2, *x.shape[1:])
    return jnp.flip(pairs, axis=1).reshape(x.shape)

  probabilities = predictions.probabilities
  log_probs = predictions.logits - predictions.log_normaliser[..., None]
  difference = log_probs - twin(log_probs)
  to_twin = jnp.sum(probabilities * difference, axis=-1)
  from_mean = difference - to_twin[..., None]
  twin_gradient = probabilities * from_mean + probabilities - twin(probabilities)
  return to_twin + twin(to_twin), twin_gradient
