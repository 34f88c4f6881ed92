"""The layers of section 3, thin modules over `ops`.

Every `apply` is pure. Dropout is on when a `dropout` random key is handed to
`apply` and `deterministic` is False; caches come in and go out as arguments.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.model.config import ModelConfig
from transformer.ops.attention import cached_attention, dot_product_attention
from transformer.ops.dropout import dropout
from transformer.ops.linear import linear
from transformer.ops.positions import sinusoidal_positions

_matrix_init = nn.initializers.xavier_uniform()


def _dot_general(x, kernel, dimension_numbers, precision=None):
  """`ops.linear` where Flax asks for a product over the last axis of x and the first of W."""
  del dimension_numbers, precision
  return linear(x, kernel)


class KeysValues(NamedTuple):
  """What a query attends to, projected once: `keys` [..., S, H, K], `values` [..., S, H, V]."""

  keys: jax.Array
  values: jax.Array


class Cache(NamedTuple):
  """Keys and values for decoding, slots where products want them.

  Attributes:
    keys: [..., H, K, S].
    values: [..., H, S, V].
  """

  keys: jax.Array
  values: jax.Array

  def with_room(self, slots) -> 'Cache':
    """The same cache with so many slots, new ones empty."""
    more = slots - self.keys.shape[-1]
    before = [(0, 0)] * (self.keys.ndim - 2)
    return Cache(jnp.pad(self.keys, (*before, (0, 0), (0, more))),
                 jnp.pad(self.values, (*before, (0, more), (0, 0))))


class Dropout(nn.Module):
  """`ops.dropout` with its key from the `dropout` stream."""

  rate: float

  @nn.compact
  def __call__(self, x, *, deterministic):
    if deterministic or self.rate == 0.0:
      return x
    return dropout(self.make_rng('dropout'), x, self.rate)


class MultiHeadAttention(nn.Module):
  """Section 3.2.2: h heads over learned projections, joined by another one."""

  config: ModelConfig

  def setup(self):
    config = self.config

    def heads(dim):
      return nn.DenseGeneral((config.num_heads, dim), dtype=config.dtype, kernel_init=_matrix_init)

    self.query = heads(config.head_key_dim)
    self.key = heads(config.head_key_dim)
    self.value = heads(config.head_value_dim)
    self.output = nn.DenseGeneral(config.model_dim, axis=(-2, -1), dtype=config.dtype,
                                  kernel_init=_matrix_init)

  def keys_values(self, x_BSD) -> KeysValues:
    """Projects what is attended to, so that it can be kept and used again."""
    return KeysValues(self.key(x_BSD), self.value(x_BSD))

  def __call__(self, x_BTD, keys_values: KeysValues, mask_BTS=None):
    """Lets [..., T, D] attend to S projected positions; returns [..., T, D]."""
    out_BTHV = dot_product_attention(self.query(x_BTD), *keys_values, mask_BTS,
                                     implementation=self.config.attention)
    return self.output(out_BTHV)

  def cache(self, x_BSD) -> Cache:
    """Projects what many steps of decoding attend to."""
    keys_BSHK, values_BSHV = self.keys_values(x_BSD)
    return Cache(jnp.moveaxis(keys_BSHK, -3, -1), jnp.moveaxis(values_BSHV, -3, -2))

  def attend(self, x_BWD, cache: Cache, mask_BWS):
    """Lets W positions of each input attend to its cache; returns [..., W, D]."""
    return self.output(cached_attention(self.query(x_BWD), *cache, mask_BWS))

  def extend(self, x_BWD, cache: Cache, mask_BWS, index):
    """Self-attention of the new position of W hypotheses, which joins the cache first.

    Args:
      x_BWD: the new positions, [..., W, D].
      cache: slot t · W + w holds what slot w of step t was; filled below `index`.
      mask_BWS: which slots a hypothesis descends from, its new one included.
      index: integer scalar, the new position.

    Returns:
      [..., W, D], and the cache with the new position filled.
    """
    beams = x_BWD.shape[-2]
    new = self.cache(x_BWD)
    cache = Cache(*(
        jax.lax.dynamic_update_slice_in_dim(old, one.astype(old.dtype), index * beams, axis=axis)
        for old, one, axis in ((cache.keys, new.keys, cache.keys.ndim - 1),
                               (cache.values, new.values, cache.values.ndim - 2))))
    return self.attend(x_BWD, cache, mask_BWS), cache


class FeedForward(nn.Module):
  """Section 3.3: max(0, x W₁ + b₁) W₂ + b₂, at every position alike."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x_BTD):
    config = self.config

    def dense(dim, name):
      return nn.Dense(dim, dtype=config.dtype, kernel_init=_matrix_init, dot_general=_dot_general,
                      name=name)

    h_BTF = nn.relu(dense(config.ff_dim, 'inner')(x_BTD))
    return dense(config.model_dim, 'outer')(h_BTF)


class Residual(nn.Module):
  """The connection around a sublayer: section 3.1, or its pre-norm variant.

  A sublayer is used as `join(x, sublayer(enter(x)))`.
  """

  config: ModelConfig

  def setup(self):
    self.layer_norm = nn.LayerNorm(epsilon=1e-6, dtype=self.config.dtype)
    self.dropout = Dropout(self.config.dropout)

  def enter(self, x_BTD):
    """What the sublayer sees: x, or its layer norm."""
    return self.layer_norm(x_BTD) if self.config.norm == 'pre' else x_BTD

  def join(self, x_BTD, y_BTD, *, deterministic):
    """The sublayer's output y, dropped out and added to x; normalised if post-norm."""
    x_BTD = x_BTD + self.dropout(y_BTD, deterministic=deterministic)
    return x_BTD if self.config.norm == 'pre' else self.layer_norm(x_BTD)


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
    """Token ids [..., T] and encoded positions [..., T, D] to [..., T, D]."""
    dtype = self.config.dtype
    x_BTD = jnp.take(self.table, tokens_BT, axis=0).astype(dtype)
    x_BTD = x_BTD * jnp.asarray(self.config.model_dim ** 0.5, dtype) + positions_BTD.astype(dtype)
    return self.dropout(x_BTD, deterministic=deterministic)


class Positions(nn.Module):
  """Encoded positions, [..., T] integers to [..., T, D]."""

  config: ModelConfig

  @nn.compact
  def __call__(self, positions_BT, length):
    """Encodes positions below `length`, which is static; learned ones below `max_positions`."""
    config = self.config
    if config.positions == 'learned':
      table = self.param('table', nn.initializers.normal(config.model_dim ** -0.5),
                         (config.max_positions, config.model_dim))
    else:
      table = jnp.asarray(sinusoidal_positions(length, config.model_dim))
    return jnp.take(table, positions_BT, axis=0)
