"""The layers of section 3 but for attention, thin modules over `ops`.

Every `apply` is pure. Dropout is on when a `dropout` random key is handed to
`apply` and `deterministic` is False.
"""

import functools

import flax.linen as nn
import jax.numpy as jnp

from transformer.model.config import ModelConfig
from transformer.ops.dropout import dropout
from transformer.ops.linear import linear
from transformer.ops.positions import sinusoidal_positions
from transformer.ops.residual import residual

_matrix_init = nn.initializers.xavier_uniform()
# As it is defined; Flax takes an approximation if it is not told otherwise.
_gelu = functools.partial(nn.gelu, approximate=False)


def _dot_general(x, kernel, dimension_numbers, precision=None):
  """`ops.linear` where Flax asks for a product over the last axis of x and the first of W."""
  del dimension_numbers, precision
  return linear(x, kernel)


def normalisation(config: ModelConfig) -> nn.Module:
  """Layer norm (Ba et al., 2016), or RMS norm (Zhang and Sennrich, 2019) by the config."""
  kind = nn.RMSNorm if config.rms_norm else nn.LayerNorm
  return kind(epsilon=1e-6, dtype=config.dtype)


class Dropout(nn.Module):
  """`ops.dropout` with its key from the `dropout` stream."""

  rate: float

  @nn.compact
  def __call__(self, x, *, deterministic):
    if deterministic or self.rate == 0.0:
      return x
    return dropout(self.make_rng('dropout'), x, self.rate)


class FeedForward(nn.Module):
  """Section 3.3: max(0, x W₁ + b₁) W₂ + b₂, at every position alike, or a later activation.

  GELU is of Hendrycks and Gimpel, 2016; SwiGLU of Shazeer, 2020, without biases.
  """

  config: ModelConfig

  @nn.compact
  def __call__(self, x_BTD):
    config = self.config

    gated = config.activation == 'swiglu'

    def dense(dim, name):
      return nn.Dense(dim, use_bias=not gated, dtype=config.dtype, kernel_init=_matrix_init,
                      dot_general=_dot_general, name=name)

    h_BTF = dense(config.ff_dim, 'inner')(x_BTD)
    if gated:
      h_BTF = nn.silu(h_BTF) * dense(config.ff_dim, 'gate')(x_BTD)
    else:
      h_BTF = {'relu': nn.relu, 'gelu': _gelu}[config.activation](h_BTF)
    return dense(config.model_dim, 'outer')(h_BTF)


class Residual(nn.Module):
  """`ops.residual` with a norm and dropout of its own: residual(x, sublayer)."""

  config: ModelConfig

  def setup(self):
    self.layer_norm = normalisation(self.config)
    self.dropout = Dropout(self.config.dropout)

  def __call__(self, x_BTD, sublayer, *, deterministic):
    return residual(x_BTD, sublayer, self.layer_norm, self.config.norm,
                    functools.partial(self.dropout, deterministic=deterministic))


class Embedding(nn.Module):
  """Token embeddings times √d (section 3.4) plus positions (section 3.5), then dropout."""

  config: ModelConfig
  vocabulary_size: int

  def setup(self):
    config = self.config
    self.table = self.param('table', nn.initializers.normal(config.model_dim ** -0.5),
                            (self.vocabulary_size, config.model_dim))
    self.dropout = Dropout(config.dropout)

  def __call__(self, tokens_BT, positions_BTD, *, deterministic):
    """Token ids [..., T] and encoded positions [..., T, D], or None, to [..., T, D]."""
    dtype = self.config.dtype
    x_BTD = jnp.take(self.table, tokens_BT, axis=0).astype(dtype)
    x_BTD = x_BTD * jnp.asarray(self.config.model_dim ** 0.5, dtype)
    if positions_BTD is not None:
      x_BTD += positions_BTD.astype(dtype)
    return self.dropout(x_BTD, deterministic=deterministic)


class Positions(nn.Module):
  """Encoded positions, [..., T] integers to [..., T, D]; None if attention is told instead.

  The sinusoids of section 3.5, or a learned table (Gehring et al., 2017; table 3, row E).
  """

  config: ModelConfig

  @nn.compact
  def __call__(self, positions_BT, length):
    """Encodes positions below `length`, which is static; learned ones below `max_positions`."""
    config = self.config
    if config.positions in ('rotary', 'relative'):
      return None
    if config.positions == 'learned':
      table = self.param('table', nn.initializers.normal(config.model_dim ** -0.5),
                         (config.max_positions, config.model_dim))
    else:
      table = jnp.asarray(sinusoidal_positions(length, config.model_dim))
    return jnp.take(table, positions_BT, axis=0)
