"""Multi-head attention (section 3.2), for whole sentences and a step at a time.

Every `apply` is pure; caches come in and go out as arguments.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.model.config import ModelConfig
from transformer.ops.attention import cached_attention, dot_product_attention
from transformer.ops.positions import relative_buckets, rotate

# The collection that attention weights go into, where it is asked for.
WEIGHTS = 'attention'
_NUM_BUCKETS = 32  # T5's
_matrix_init = nn.initializers.xavier_uniform()


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


class Placement(NamedTuple):
  """Where vectors are, for a self-attention that is told.

  Attributes:
    positions_BT: integers, their places in their sentences.
    bias_HTS: what their distances add to the scores, or None.
  """

  positions_BT: jax.Array
  bias_HTS: jax.Array | None


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
    if config.query_key_norm:
      self.query_norm, self.key_norm = (nn.RMSNorm(epsilon=1e-6, dtype=config.dtype)
                                        for _ in range(2))

  def keys_values(self, x_BSD, placement: Placement | None = None) -> KeysValues:
    """Projects what is attended to, so that it can be kept and used again."""
    keys_BSHK = self._placed(self._keys(x_BSD), placement)
    return KeysValues(keys_BSHK, self.value(x_BSD))

  def __call__(self, x_BTD, keys_values: KeysValues, mask_BTS=None,
               placement: Placement | None = None):
    """Lets [..., T, D] attend to S projected positions; returns [..., T, D].

    Where the collection `attention` is mutable, the weights [..., H, T, S] go into
    it, and the reference path is taken.
    """
    wanted = self.is_mutable_collection(WEIGHTS) and not self.is_initializing()
    out = dot_product_attention(
        self._placed(self._queries(x_BTD), placement), *keys_values, mask_BTS,
        placement and placement.bias_HTS, implementation=self.config.attention,
        return_weights=wanted)
    if wanted:
      out, weights_BHTS = out
      self.sow(WEIGHTS, 'weights', weights_BHTS)
    return self.output(out)

  def cache(self, x_BSD, placement: Placement | None = None) -> Cache:
    """Projects what many steps of decoding attend to."""
    keys_BSHK, values_BSHV = self.keys_values(x_BSD, placement)
    return Cache(jnp.moveaxis(keys_BSHK, -3, -1), jnp.moveaxis(values_BSHV, -3, -2))

  def attend(self, x_BWD, cache: Cache, mask_BWS, placement: Placement | None = None):
    """Lets W positions of each input attend to its cache; returns [..., W, D]."""
    return self.output(cached_attention(self._placed(self._queries(x_BWD), placement), *cache,
                                        mask_BWS, placement and placement.bias_HTS))

  def extend(self, x_BWD, cache: Cache, mask_BWS, index, placement: Placement | None = None):
    """Self-attention of the new position of W hypotheses, which joins the cache first.

    Args:
      x_BWD: the new positions, [..., W, D].
      cache: slot t · W + w holds what slot w of step t was; filled below `index`.
      mask_BWS: which slots a hypothesis descends from, its new one included.
      index: integer scalar, the new position.
      placement: the new position, once for each hypothesis, and the bias of every
        slot.

    Returns:
      [..., W, D], and the cache with the new position filled.
    """
    beams = x_BWD.shape[-2]
    new = self.cache(x_BWD, placement)
    cache = Cache(*(
        jax.lax.dynamic_update_slice_in_dim(old, one.astype(old.dtype), index * beams, axis=axis)
        for old, one, axis in ((cache.keys, new.keys, cache.keys.ndim - 1),
                               (cache.values, new.values, cache.values.ndim - 2))))
    return self.attend(x_BWD, cache, mask_BWS, placement), cache

  def _queries(self, x_BTD):
    q_BTHK = self.query(x_BTD)
    return self.query_norm(q_BTHK) if self.config.query_key_norm else q_BTHK

  def _keys(self, x_BSD):
    k_BSHK = self.key(x_BSD)
    return self.key_norm(k_BSHK) if self.config.query_key_norm else k_BSHK

  def _placed(self, x_BTHK, placement):
    """Queries or keys of self-attention, turned by their positions where that is configured."""
    if placement is None or self.config.positions != 'rotary':
      return x_BTHK
    return rotate(x_BTHK, placement.positions_BT)


class RelativeBias(nn.Module):
  """What the distance between two positions adds to the scores of each head: T5's bias."""

  config: ModelConfig
  bidirectional: bool

  @nn.compact
  def __call__(self, query_positions_T, key_positions_S):
    """Positions in one line to [H, T, S] float32."""
    table = self.param('table', nn.initializers.normal(self.config.model_dim ** -0.5),
                       (_NUM_BUCKETS, self.config.num_heads))
    buckets_TS = relative_buckets(key_positions_S[None, :] - query_positions_T[:, None],
                                  _NUM_BUCKETS, bidirectional=self.bidirectional)
    return jnp.moveaxis(jnp.take(table, buckets_TS, axis=0), -1, 0)
