"""Multi-head attention (section 3.2), for whole sequences and for single steps of decoding.

Every `apply` is pure: caches are arguments and results.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.model.config import ModelConfig
from transformer.ops.attention import (
  WeightDropout,
  attention_with_weights,
  cached_attention,
  dot_product_attention,
  fused_attention,
)
from transformer.ops.positions import relative_buckets, rotate

# The Flax collection of attention weights, which are stored if `apply` makes it mutable.
WEIGHTS = 'attention'
_NUM_BUCKETS = 32  # As in T5.
_matrix_init = nn.initializers.xavier_uniform()


class Placement(NamedTuple):
  """Positions and the relative bias that self-attention needs.

  Attributes:
    positions_BT: integers, positions of the tokens in their sentences.
    bias_HTS: the relative bias, added to the scores; None adds nothing.
  """

  positions_BT: jax.Array
  bias_HTS: jax.Array | None


class Cache(NamedTuple):
  """Keys [..., H, K, S] and values [..., H, S, V], laid out for the products of decoding."""

  keys: jax.Array
  values: jax.Array

  def padded_to(self, slots) -> 'Cache':
    """Returns the cache with S = `slots`; the new slots hold zeros."""
    more = slots - self.keys.shape[-1]
    before = [(0, 0)] * (self.keys.ndim - 2)
    return Cache(jnp.pad(self.keys, (*before, (0, 0), (0, more))),
                 jnp.pad(self.values, (*before, (0, more), (0, 0))))


class MultiHeadAttention(nn.Module):
  """Multi-head attention with learned projections: section 3.2.2."""

  config: ModelConfig

  def setup(self):
    config = self.config

    def heads(dim):
      return nn.DenseGeneral((config.num_heads, dim), use_bias=config.attention_bias == 'all',
                             dtype=config.dtype, kernel_init=_matrix_init)

    self.query = heads(config.head_key_dim)
    self.key = heads(config.head_key_dim)
    self.value = heads(config.head_value_dim)
    self.output = nn.DenseGeneral(config.model_dim, axis=(-2, -1),
                                  use_bias=config.attention_bias != 'none', dtype=config.dtype,
                                  kernel_init=_matrix_init)
    if config.query_key_norm:
      self.query_norm, self.key_norm = (nn.RMSNorm(epsilon=1e-6, dtype=config.dtype)
                                        for _ in range(2))

  def keys_values(self, x_BSD, placement: Placement | None = None) -> tuple[jax.Array, jax.Array]:
    """Projects inputs [..., S, D] to keys [..., S, H, K] and values [..., S, H, V]."""
    k_BSHK = self.key(x_BSD)
    k_BSHK = self.key_norm(k_BSHK) if self.config.query_key_norm else k_BSHK
    return self._rotated(k_BSHK, placement), self.value(x_BSD)

  def attend_to_itself(self, x_BTD, mask_BTS, placement: Placement, *, deterministic=True):
    """Attends from each position of the input to all that the mask allows."""
    return self(x_BTD, self.keys_values(x_BTD, placement), mask_BTS, placement,
                deterministic=deterministic)

  def __call__(self, x_BTD, keys_values, mask_BTS=None, placement: Placement | None = None, *,
               deterministic=True):
    """Attends from T queries to S keys: maps [..., T, D] to [..., T, D].

    If the collection `attention` is mutable, it gets the weights [..., H, T, S]; no weights are
    dropped then, and the fused kernel is not used.
    """
    config = self.config
    given = (self._queries(x_BTD, placement), *keys_values, mask_BTS,
             placement and placement.bias_HTS)
    if self.is_mutable_collection(WEIGHTS) and not self.is_initializing():
      out, weights_BHTS = attention_with_weights(*given)
      self.sow(WEIGHTS, 'weights', weights_BHTS)
    elif config.attention == 'cudnn':
      out = fused_attention(*given)
    else:
      drops = config.attention_dropout > 0.0 and not deterministic
      out = dot_product_attention(*given, dropout=WeightDropout(
          self.make_rng('dropout'), config.attention_dropout) if drops else None)
    return self.output(out)

  def cache(self, x_BSD, placement: Placement | None = None) -> Cache:
    """Projects inputs [..., S, D] to a cache, for use by many steps of decoding."""
    keys_BSHK, values_BSHV = self.keys_values(x_BSD, placement)
    return Cache(jnp.moveaxis(keys_BSHK, -3, -1), jnp.moveaxis(values_BSHV, -3, -2))

  def attend(self, x_BWD, cache: Cache, mask_BWS, placement: Placement | None = None):
    """Attends from W queries of an input to its cache: maps [..., W, D] to [..., W, D]."""
    return self.output(cached_attention(self._queries(x_BWD, placement), *cache, mask_BWS,
                                        placement and placement.bias_HTS))

  def extend(self, x_BWD, cache: Cache, mask_BWS, index, placement: Placement | None = None):
    """Adds the newest tokens of W hypotheses to the cache, and attends from them to it.

    Args:
      x_BWD: the layer's input at the newest token of each hypothesis.
      cache: slot t · W + w is for hypothesis w at position t; filled below `index`.
      mask_BWS: boolean, from `ops.masks.lineage_mask`.
      index: integer scalar, the position of the newest tokens.
      placement: this position for each hypothesis, and the relative bias for all slots.

    Returns:
      [..., W, D], and the cache filled at `index` too.
    """
    beams = x_BWD.shape[-2]
    added = self.cache(x_BWD, placement)
    cache = Cache(*(
        jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), index * beams, axis=axis)
        for old, new, axis in ((cache.keys, added.keys, cache.keys.ndim - 1),
                               (cache.values, added.values, cache.values.ndim - 2))))
    return self.attend(x_BWD, cache, mask_BWS, placement), cache

  def _queries(self, x_BTD, placement):
    q_BTHK = self.query(x_BTD)
    q_BTHK = self.query_norm(q_BTHK) if self.config.query_key_norm else q_BTHK
    return self._rotated(q_BTHK, placement)

  def _rotated(self, x_BTHK, placement):
    """Rotates queries or keys by their positions if the config asks for rotary positions."""
    if placement is None or self.config.positions != 'rotary':
      return x_BTHK
    return rotate(x_BTHK, placement.positions_BT)


class RelativeBias(nn.Module):
  """T5's relative bias: a learned number for each head and each bucket of distances."""

  config: ModelConfig
  bidirectional: bool

  @nn.compact
  def __call__(self, query_positions_T, key_positions_S):
    """Maps integer positions of queries and keys to the bias, float32 [H, T, S]."""
    table = self.param('table', nn.initializers.normal(self.config.model_dim ** -0.5),
                       (_NUM_BUCKETS, self.config.num_heads))
    buckets_TS = relative_buckets(key_positions_S[None, :] - query_positions_T[:, None],
                                  _NUM_BUCKETS, bidirectional=self.bidirectional)
    return jnp.moveaxis(jnp.take(table, buckets_TS, axis=0), -1, 0)
