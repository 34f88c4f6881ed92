"""A model with mixtures of experts as feed-forward sublayers.

  --config.model.module="('transformer.tools.architectures.mixture_of_experts:MoETransformer',
      {'num_experts': 4, 'top_k': 2, 'balance_weight': 0.01})"

A router chooses `top_k` experts per token: one as in Fedus et al., 2022, "Switch Transformers", or
more as in Shazeer et al., 2017, "Outrageously Large Neural Networks". In this implementation, every
expert processes every token, and unchosen experts have a gate of 0. There is no capacity limit, so
no token is dropped, and tokens do not affect each other; but a training step costs the compute of
all experts.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.errors import UserError
from transformer.model.attention import NO_CONTEXT
from transformer.model.config import ModelConfig
from transformer.model.flops import transformer_flops_per_token
from transformer.model.layers import FeedForward, Layer
from transformer.model.transformer import Transformer


class MixtureOfExperts(nn.Module):
  """The sum of the experts' outputs, weighted by their gates."""

  config: ModelConfig
  num_experts: int
  top_k: int
  balance_weight: float

  def setup(self):
    self.router = nn.Dense(self.num_experts, use_bias=False, dtype=jnp.float32)
    self.expert = [FeedForward(self.config) for _ in range(self.num_experts)]

  def __call__(self, x_BTD, context=NO_CONTEXT, *, deterministic):
    """Maps [..., T, D] to [..., T, D]; padding, which attends to nothing, is not load-balanced."""
    # E: experts.
    probabilities_BTE = jax.nn.softmax(self.router(x_BTD.astype(jnp.float32)))
    _, best_BTK = jax.lax.top_k(probabilities_BTE, self.top_k)
    chosen_BTE = jnp.sum(jax.nn.one_hot(best_BTK, self.num_experts), axis=-2)
    gates_BTE = chosen_BTE * probabilities_BTE
    if (
      self.top_k > 1
    ):  # A single gate stays a probability, so that the router gets its gradient.
      gates_BTE /= jnp.sum(gates_BTE, axis=-1, keepdims=True)
    is_token_BT = jnp.ones(x_BTD.shape[:-1], bool)
    if context.mask_BTS is not None:
      is_token_BT = jnp.any(context.mask_BTS, axis=-1)
    balance = load_balance(probabilities_BTE, chosen_BTE / self.top_k, is_token_BT)
    self.sow('losses', 'load_balance', self.balance_weight * balance)
    outputs_EBTD = jnp.stack(
      [expert(x_BTD, deterministic=deterministic) for expert in self.expert]
    )
    return jnp.einsum('E...D,...E->...D', outputs_EBTD, gates_BTE.astype(x_BTD.dtype))


def load_balance(probabilities_BTE, fractions_BTE, is_token_BT) -> jax.Array:
  """Returns E · Σ f p of Fedus et al., equation 4: 1 if all experts are used equally.

  f is the fraction of the tokens' choices that go to an expert, and p is its mean probability.
  """
  weights_BT1 = is_token_BT[..., None] / jnp.maximum(jnp.sum(is_token_BT), 1)
  tokens = tuple(range(is_token_BT.ndim))
  fractions_E = jnp.sum(fractions_BTE * weights_BT1, axis=tokens)
  probabilities_E = jnp.sum(probabilities_BTE * weights_BT1, axis=tokens)
  return fractions_BTE.shape[-1] * jnp.sum(fractions_E * probabilities_E)


class MoELayer(Layer):
  """A layer whose feed-forward sublayer is a mixture of experts."""

  num_experts: int = 4
  top_k: int = 2
  balance_weight: float = 0.01

  def make_feed_forward(self):
    return MixtureOfExperts(
      self.config, self.num_experts, self.top_k, self.balance_weight
    )


class MoETransformer(Transformer):
  """A Transformer whose feed-forward sublayers are mixtures of experts.

  Attributes:
    num_experts: number of experts, each of width `ff_dim`.
    top_k: number of experts per token.
    balance_weight: weight of the load-balancing loss of each layer.

  Raises:
    UserError: `top_k` is not between 1 and `num_experts`, or `balance_weight` is negative.
  """

  num_experts: int = 4
  top_k: int = 2
  balance_weight: float = 0.01

  def __post_init__(self):
    if not 1 <= self.top_k <= self.num_experts:
      raise UserError(
        f'top_k must be from 1 to num_experts; got {self.top_k} and {self.num_experts}'
      )
    if not self.balance_weight >= 0.0:
      raise UserError(f'balance_weight must be at least 0; got {self.balance_weight}')
    super().__post_init__()

  def make_layer(self, cross):
    """Returns an encoder layer, or with `cross` a decoder layer."""
    return MoELayer(
      self.config, cross, self.num_experts, self.top_k, self.balance_weight
    )

  def flops(self, source_length=0, target_length=0):
    """Counts as `Transformer.flops` does, with all experts, since all process every token."""
    config = dataclasses.replace(
      self.config, ff_dim=self.num_experts * self.config.ff_dim
    )
    return transformer_flops_per_token(
      config, self.vocabulary_size, source_length, target_length
    )
