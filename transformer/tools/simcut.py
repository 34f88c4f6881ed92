"""SimCut (Gao et al., 2022, "Bi-SimCut: A Simple Strategy for Boosting NMT"), an objective.

  --config.train.objective="('transformer.tools.simcut:simcut', 3.0, 0.05)"

Each sentence has a second forward pass with token cutoff: some token embeddings are set to zero.
The loss penalizes the divergence between the predictions of the two passes.
"""

import jax
import jax.numpy as jnp

from transformer.data.batch import EOS_ID, Batch
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.ops.dropout import random_bits
from transformer.ops.losses import chunked_loss, token_losses
from transformer.training.objective import (
  Objective,
  add_auxiliary_losses,
  duplicate_batch,
  duplicate_rows,
  forward,
)


def simcut(config, alpha: float = 3.0, cutoff_probability: float = 0.05) -> Objective:
  """Returns the objective: cross entropy of pass 1, plus α · KL(pass 1 ‖ pass 2), equation 3.

  Only the second pass has token cutoff. Both passes have dropout, and gradients flow through both.
  `nll` is the mean of both passes.

  Args:
    alpha: α; the paper uses 3.
    cutoff_probability: p, the probability of token cutoff; the paper uses 0.05.
  """
  if not 0.0 < alpha < float('inf'):
    raise UserError(f'alpha of SimCut must be above 0 and finite; got {alpha}')
  if not 0.0 < cutoff_probability < 1.0:
    raise UserError(
      'cutoff_probability, the probability of token cutoff in SimCut, must be above 0 and '
      f'below 1; got {cutoff_probability}'
    )
  function = simcut_loss(config.train.label_smoothing, alpha)

  def loss(model, params, batch, dropout_key=None, *, frozen=(), num_row_shards=1):
    batch, weights_BT = duplicate_batch(batch)
    cut_key = None
    if dropout_key is not None:
      cut_key, dropout_key = jax.random.split(dropout_key)
    model, params, inputs = cutoff_inputs(
      model, params, batch, cut_key, cutoff_probability
    )
    x_BTD, output_ND, aux_losses = forward(model, params, inputs, dropout_key)
    targets_BT = batch.target_tokens
    sums = chunked_loss(
      function,
      x_BTD,
      output_ND[:-1],
      weights_BT,
      targets_BT,
      num_row_shards=num_row_shards,
    )
    return add_auxiliary_losses(sums, aux_losses)

  return Objective(loss, passes=2)


def cutoff_inputs(
  model: Transformer, params, batch: Batch, key, cutoff_probability: float
):
  """Returns a model, its parameters and a batch with token cutoff in every second row.

  All tables have an additional row of zeros, the embedding of affected tokens. Token cutoff does
  not apply to EOS in the source, to BOS in the decoder input, or without a `key`.
  """

  def with_zeros(table_ND):
    return jnp.pad(table_ND, [(0, 1)] + [(0, 0)] * (table_ND.ndim - 1))

  tables = {}
  for name in ('source_embedding', 'target_embedding', 'output', 'output_bias'):
    if name in params:
      tables[name] = jax.tree.map(with_zeros, params[name])
  target_size = model.vocabulary_size
  source_size = model.source_vocabulary_size or target_size
  wider = model.clone(
    vocabulary_size=target_size + 1, source_vocabulary_size=source_size + 1
  )
  params = {**params, **tables}
  if key is None:
    return wider, params, batch

  def cut(tokens_BT, zero_row, side_key):
    below = random_bits(side_key, tokens_BT.shape) < jnp.uint32(
      cutoff_probability * 2**32
    )
    is_second_B1 = (jnp.arange(len(tokens_BT)) % 2 == 1)[:, None]
    return jnp.where(below & is_second_B1 & (tokens_BT != EOS_ID), zero_row, tokens_BT)

  source_key, target_key = jax.random.split(key)
  # A target's EOS is not an input of the decoder, which has BOS there.
  cut_batch = batch._replace(
    source_tokens=cut(batch.source_tokens, source_size, source_key),
    target_tokens=cut(batch.target_tokens, target_size, target_key),
  )
  return wider, params, cut_batch


def simcut_loss(smoothing: float, alpha: float):
  """Returns a loss for `chunked_loss`: cross entropy of rows p = 2i, plus α · KL(p‖q), q = 2i + 1.

  Each of the two rows has half of the weight of a token.
  """

  def function(logits, targets, _):
    loss, nll = token_losses(logits, targets, smoothing)
    log_probs = jax.nn.log_softmax(logits)
    log_p = log_probs[0::2]
    divergence = jnp.sum(jnp.exp(log_p) * (log_p - log_probs[1::2]), axis=-1)
    return duplicate_rows(loss[0::2] + alpha * divergence), nll

  return function
