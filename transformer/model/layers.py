"""The layers of section 3, as thin Flax modules over `ops`.

Every `apply` is pure. With `deterministic=False`, dropout is on and `apply` needs a random key
named `dropout`.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.model.attention import (
  NO_CONTEXT,
  AttentionContext,
  MultiHeadAttention,
)
from transformer.model.config import ModelConfig
from transformer.model.dense import Dense
from transformer.model.search_state import KVCache
from transformer.ops.dropout import dropout
from transformer.ops.positions import sinusoidal_positions

# The exact GELU; Flax approximates it by default.
_gelu = functools.partial(nn.gelu, approximate=False)


def make_norm(config: ModelConfig) -> nn.Module:
  """Returns a layer norm (Ba et al., 2016) or RMS norm (Zhang and Sennrich, 2019) module."""
  kind = nn.RMSNorm if config.rms_norm else nn.LayerNorm
  return kind(epsilon=1e-6, dtype=config.dtype)


class Dropout(nn.Module):
  """`ops.dropout` with a key from Flax's `dropout` stream."""

  rate: float

  @nn.compact
  def __call__(self, x, *, deterministic) -> jax.Array:
    if deterministic or self.rate == 0.0:
      return x
    return dropout(self.make_rng('dropout'), x, self.rate)


class FeedForward(nn.Module):
  """Feed-forward sublayer, max(0, x W₁ + b₁) W₂ + b₂ at every position: section 3.3.

  `ModelConfig.activation` describes its variants.
  """

  config: ModelConfig

  @nn.compact
  def __call__(
    self, x_BTD, context: AttentionContext = NO_CONTEXT, *, deterministic
  ) -> jax.Array:
    """Maps [..., T, D] to [..., T, D]; `context` is unused, a subclass may read it."""
    config = self.config
    gated = config.activation == 'swiglu'

    h_BTF = Dense(config, (config.ff_dim,), not gated, name='inner')(x_BTD)
    if gated:
      gate_BTF = Dense(config, (config.ff_dim,), False, name='gate')(x_BTD)
      h_BTF = nn.silu(h_BTF) * gate_BTF
    else:
      h_BTF = {'relu': nn.relu, 'gelu': _gelu, 'silu': nn.silu}[config.activation](
        h_BTF
      )
    h_BTF = Dropout(config.activation_dropout)(h_BTF, deterministic=deterministic)
    return Dense(
      config, (config.model_dim,), not gated, round_product=True, name='outer'
    )(h_BTF)


class Residual(nn.Module):
  """LayerNorm(x + Sublayer(x)), section 3.1; with `norm_position=pre`, x + Sublayer(LayerNorm(x)).

  Pre-norm was used by Wang et al., 2019, and Baevski and Auli, 2019, and analyzed by Xiong et al.,
  2020, "On Layer Normalization in the Transformer Architecture". It requires one more norm after
  the last layer of a stack. Dropout is applied to the output of the sublayer (section 5.4).
  """

  config: ModelConfig

  def setup(self):
    self.layer_norm = make_norm(self.config)
    self.dropout = Dropout(self.config.dropout)

  def __call__(self, x_BTD, sublayer, *, deterministic) -> jax.Array:
    pre_norm = self.config.norm_position == 'pre'
    y_BTD = sublayer(self.layer_norm(x_BTD) if pre_norm else x_BTD)
    sum_BTD = x_BTD + self.dropout(y_BTD, deterministic=deterministic)
    return sum_BTD if pre_norm else self.layer_norm(sum_BTD)


class Embedding(nn.Module):
  """Token embeddings times √d (section 3.4), plus positions (section 3.5), with dropout."""

  config: ModelConfig
  vocabulary_size: int

  def setup(self):
    config = self.config
    self.table = self.param(
      'table',
      nn.initializers.normal(config.model_dim**-0.5),
      (self.vocabulary_size, config.model_dim),
    )
    self.dropout = Dropout(config.dropout)

  def __call__(self, tokens_BT, positions_BTD, *, deterministic) -> jax.Array:
    """Maps token ids [..., T] and position encodings [..., T, D] or None to [..., T, D]."""
    dtype = self.config.dtype
    x_BTD = jnp.take(self.table, tokens_BT, axis=0).astype(dtype)
    x_BTD *= self.config.model_dim**0.5
    if positions_BTD is not None:
      x_BTD += positions_BTD.astype(dtype)
    return self.dropout(x_BTD, deterministic=deterministic)


class Positions(nn.Module):
  """Position encodings added to embeddings: sinusoidal (section 3.5) or a learned table.

  The learned table is row E of table 3 (Gehring et al., 2017). Rotary and relative positions are
  part of attention and add no encodings to embeddings.
  """

  config: ModelConfig

  @nn.compact
  def __call__(self, positions_BT, length) -> jax.Array | None:
    """Maps integer positions [..., T] below the static `length` to [..., T, D] or None."""
    config = self.config
    if config.positions in ('rotary', 'relative'):
      return None
    if config.positions == 'learned':
      table = self.param(
        'table',
        nn.initializers.normal(config.model_dim**-0.5),
        (config.max_positions, config.model_dim),
      )
    else:
      table = jnp.asarray(sinusoidal_positions(length, config.model_dim))
    return jnp.take(table, positions_BT, axis=0)


class Layer(nn.Module):
  """An encoder layer, or with `cross` a decoder layer: section 3.1."""

  config: ModelConfig
  cross: bool = False

  def setup(self):
    self.self_attention = self.make_attention(cross=False)
    self.self_attention_residual = self.make_residual()
    if self.cross:
      self.cross_attention = self.make_attention(cross=True)
      self.cross_attention_residual = self.make_residual()
    self.feed_forward = self.make_feed_forward()
    self.feed_forward_residual = self.make_residual()

  def make_attention(self, cross: bool) -> MultiHeadAttention:
    """Returns self-attention, or with `cross` cross-attention; a subclass may override it."""
    return MultiHeadAttention(self.config)

  def make_feed_forward(self) -> nn.Module:
    """Returns a module with the interface of `FeedForward`; a subclass may override it."""
    return FeedForward(self.config)

  def make_residual(self) -> nn.Module:
    """Returns a module with the interface of `Residual`; a subclass may override it."""
    return Residual(self.config)

  def __call__(
    self,
    x_BTD,
    context: AttentionContext,
    source_keys_values=None,
    source_context: AttentionContext = NO_CONTEXT,
    *,
    deterministic,
  ) -> jax.Array:
    """Maps [..., T, D] to [..., T, D]; `source_keys_values` is the source keys and values."""
    attend = functools.partial(
      self.self_attention.self_attend, context=context, deterministic=deterministic
    )
    attend_to_source = self.cross and functools.partial(
      self.cross_attention,
      keys_values=source_keys_values,
      context=source_context,
      deterministic=deterministic,
    )
    return self.apply_sublayers(x_BTD, context, attend, attend_to_source, deterministic)

  @nn.jit
  def step(
    self,
    x_BWD,
    cache: KVCache,
    context: AttentionContext,
    index,
    source_cache: KVCache,
    source_context: AttentionContext,
  ) -> tuple[jax.Array, KVCache]:
    """Decodes the latest token of W hypotheses; arguments as for `self_attend_step`."""

    def attend(h_BWD):
      nonlocal cache
      y_BWD, cache = self.self_attention.self_attend_step(h_BWD, cache, context, index)
      return y_BWD

    attend_to_source = functools.partial(
      self.cross_attention.attend_to_cache, cache=source_cache, context=source_context
    )
    x_BWD = self.apply_sublayers(x_BWD, context, attend, attend_to_source, True)
    return x_BWD, cache

  def apply_sublayers(
    self, x_BTD, context: AttentionContext, attend, attend_to_source, deterministic
  ) -> jax.Array:
    """Applies the sublayers with their residual connections; maps [..., T, D] to [..., T, D].

    Args:
      context: the context of self-attention, also passed to the feed-forward sublayer. A token that
        may attend to nothing is padding.
      attend: self-attention, as a function of its input.
      attend_to_source: cross-attention, as a function of its input; unused without `cross`.
    """
    x_BTD = self.self_attention_residual(x_BTD, attend, deterministic=deterministic)
    if self.cross:
      x_BTD = self.cross_attention_residual(
        x_BTD, attend_to_source, deterministic=deterministic
      )
    feed_forward = functools.partial(
      self.feed_forward, context=context, deterministic=deterministic
    )
    return self.feed_forward_residual(x_BTD, feed_forward, deterministic=deterministic)
