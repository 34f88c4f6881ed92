"""Attention weights of all layers and heads."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.errors import UserError
from transformer.model.attention import WEIGHTS_COLLECTION
from transformer.model.building import Model


class AttentionWeights(NamedTuple):
  """Attention weights of all layers, float32; each row sums to one, or to zero for padding.

  L is the number of layers in the encoder or decoder.

  Attributes:
    encoder: [L, B, H, T, S], self-attention of the source, T = S.
    decoder: [L, B, H, T, S], masked self-attention of the target, T = S.
    cross: [L, B, H, T, S], attention from the target to the source.
  """

  encoder: jax.Array
  decoder: jax.Array
  cross: jax.Array


class SentenceAttention(NamedTuple):
  """Attention weights of a source of S tokens and its translation of T tokens; rows sum to one.

  Row t of `decoder` and `cross` predicts piece t of the target from BOS and the pieces before t.
  """

  source: list[str]  # pieces, EOS last
  target: list[str]
  encoder: np.ndarray  # float32 [L, H, S, S]
  decoder: np.ndarray  # float32 [L, H, T, T]
  cross: np.ndarray  # float32 [L, H, T, S]


@jax.jit(static_argnums=0)
def attention_weights(model: Model, params, *batch) -> AttentionWeights:
  """Runs teacher forcing on a batch, and returns all attention weights.

  The weights are from the reference implementation, even if `config.attention` is `cudnn`. Raises
  `UserError` if the model does not store attention weights.
  """
  _, variables = model.apply({'params': params}, *batch, mutable=[WEIGHTS_COLLECTION])
  weights = variables.get(WEIGHTS_COLLECTION, {})

  def weights_of(stack, depth, attention):
    return jnp.stack(
      [weights[f'{stack}_{layer}'][attention]['weights'][0] for layer in range(depth)]
    )

  config = model.config
  try:
    return AttentionWeights(
      weights_of('encoder', config.num_layers, 'self_attention'),
      weights_of('decoder', config.decoder_depth, 'self_attention'),
      weights_of('decoder', config.decoder_depth, 'cross_attention'),
    )
  except KeyError as error:
    raise UserError(
      f'the model {type(model).__name__} stores no attention weights of the layers '
      f'encoder_0, decoder_0 and so on, as Transformer does'
    ) from error
