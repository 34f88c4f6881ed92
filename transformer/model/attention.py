"""Multi-head attention (section 3.2), for whole sequences and for single decoding steps.

Every `apply` is pure: caches are arguments and results.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer import plugins
from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.dense import Dense
from transformer.model.search_state import KVCache
from transformer.ops.attention import (
  AttentionDropout,
  attention_with_weights,
  cached_attention,
  dot_product_attention,
)
from transformer.ops.fused_attention import fused_attention
from transformer.ops.positions import NUM_BUCKETS, apply_rotary, relative_buckets

# The Flax collection of attention weights; they are stored if it is mutable in `apply`.
WEIGHTS_COLLECTION = 'attention'


class AttentionContext(NamedTuple):
  """Mask, positions and bias of an attention call; None: unused.

  Attributes:
    mask_BTS: boolean, True where a query may attend.
    positions_BT: integers, positions of the tokens in their sentences, for self-attention.
    bias_HTS: the relative position bias, added to the scores.
  """

  mask_BTS: jax.Array | None = None
  positions_BT: jax.Array | None = None
  bias_HTS: jax.Array | None = None


NO_CONTEXT = AttentionContext()


class MultiHeadAttention(nn.Module):
  """Multi-head attention with learned projections: section 3.2.2."""

  config: ModelConfig

  def setup(self):
    config = self.config

    def project_to(heads, dim):
      return Dense(config, (heads, dim), config.attention_bias == 'all')

    self.query = project_to(config.num_heads, config.head_key_dim)
    self.key = project_to(self.key_value_heads, config.head_key_dim)
    self.value = project_to(self.key_value_heads, config.head_value_dim)
    self.output = Dense(
      config,
      (config.model_dim,),
      config.attention_bias != 'none',
      num_inputs=2,
      round_product=True,
    )
    if config.query_key_norm:
      self.query_norm = nn.RMSNorm(epsilon=1e-6, dtype=config.dtype)
      self.key_norm = nn.RMSNorm(epsilon=1e-6, dtype=config.dtype)

  @property
  def key_value_heads(self) -> int:
    """Number of key and value heads, also in caches; a subclass may have fewer than query heads."""
    return self.config.num_heads

  def keys_values(self, x_BSD, context=NO_CONTEXT) -> tuple[jax.Array, jax.Array]:
    """Projects inputs [..., S, D] to keys [..., S, H, K] and values [..., S, H, V]."""
    return self.project('key', x_BSD, context), self.value(x_BSD)

  def self_attend(
    self, x_BTD, context: AttentionContext, *, deterministic=True
  ) -> jax.Array:
    """Self-attention: attends from each position to all positions that the mask allows."""
    return self(
      x_BTD, self.keys_values(x_BTD, context), context, deterministic=deterministic
    )

  def __call__(
    self, x_BTD, keys_values, context=NO_CONTEXT, *, deterministic=True
  ) -> jax.Array:
    """Attends from T queries to S keys: maps [..., T, D] to [..., T, D].

    If the collection `attention` is mutable, the weights [..., H, T, S] are stored in it, without
    attention dropout or the fused kernel.
    """
    config = self.config
    inputs = (
      self.project('query', x_BTD, context),
      *keys_values,
      context.mask_BTS,
      context.bias_HTS,
    )
    # Parameters are initialized without a GPU, too.
    initializing = self.is_initializing()
    if self.is_mutable_collection(WEIGHTS_COLLECTION) and not initializing:
      if self._custom:
        raise UserError(
          f'the attention {config.attention} returns no attention weights; set '
          'model.attention=reference'
        )
      out, weights_BHTS = attention_with_weights(*inputs)
      self.sow(WEIGHTS_COLLECTION, 'weights', weights_BHTS)
    elif config.attention == 'cudnn' and not initializing:
      return fused_attention(*inputs, project=self.output)
    else:
      attend = self._custom or dot_product_attention
      dropout = None
      if config.attention_dropout > 0.0 and not deterministic:
        dropout = AttentionDropout(self.make_rng('dropout'), config.attention_dropout)
      out = attend(*inputs, dropout=dropout)
    return self.output(out)

  def cache(self, x_BSD, context=NO_CONTEXT) -> KVCache:
    """Projects inputs [..., S, D] to a cache for all decoding steps."""
    return KVCache.from_keys_values(*self.keys_values(x_BSD, context))

  def attend_to_cache(
    self, x_BWD, cache: KVCache, context: AttentionContext
  ) -> jax.Array:
    """Attends from the W queries of an input to its cache: maps [..., W, D] to [..., W, D]."""
    query_BWHK = self.project('query', x_BWD, context)
    restrictions = (context.mask_BTS, context.bias_HTS)
    if not self._custom:
      return self.output(cached_attention(query_BWHK, *cache, *restrictions))
    keys_BSHK = jnp.moveaxis(cache.keys, -1, -3)
    values_BSHV = jnp.swapaxes(cache.values, -3, -2)
    out = self._custom(query_BWHK, keys_BSHK, values_BSHV, *restrictions, dropout=None)
    return self.output(out)

  def self_attend_step(
    self, x_BWD, cache: KVCache, context: AttentionContext, index
  ) -> tuple[jax.Array, KVCache]:
    """Appends the latest tokens of W hypotheses to the cache, and attends from them to the cache.

    Args:
      x_BWD: the input of the layer at the latest token of each hypothesis.
      cache: slot t · W + w is for hypothesis w at position t; filled below `index`.
      context: the mask of `ops.masks.lineage_mask`, and the relative bias for all slots.
      index: integer scalar, the position of the latest tokens.

    Returns:
      The output [..., W, D], and the cache, now also filled at `index`.
    """
    start = index * x_BWD.shape[-2]
    update = self.cache(x_BWD, context)
    write = jax.lax.dynamic_update_slice_in_dim
    cache = KVCache(
      write(cache.keys, update.keys, start, axis=-1),
      write(cache.values, update.values, start, axis=-2),
    )
    return self.attend_to_cache(x_BWD, cache, context), cache

  @property
  def _custom(self):
    """The custom function of `model.attention`; None for the built-in ones."""
    spec = self.config.attention
    if ':' not in spec:
      return None
    return plugins.as_user_error(f'the attention {spec} failed')(
      plugins.load(spec, 'attention')
    )

  def project(self, name, x_BTD, context) -> jax.Array:
    """Projects inputs [..., T, D] to heads [..., T, H, K].

    Applies RMS norm and rotary positions if configured, in training as in decoding. `name` is
    `query` or `key`.
    """
    x_BTHK = getattr(self, name)(x_BTD)
    if self.config.query_key_norm:
      x_BTHK = getattr(self, f'{name}_norm')(x_BTHK)
    if self.config.positions == 'rotary' and context.positions_BT is not None:
      x_BTHK = apply_rotary(x_BTHK, context.positions_BT)
    return x_BTHK


class RelativeBias(nn.Module):
  """T5's relative position bias: a learned number for each head and bucket of distances.

  The distance of two tokens of a sentence is the same in a packed row as in the sentence. So
  indices in the row serve as positions for all sentences.
  """

  config: ModelConfig
  bidirectional: bool

  @nn.compact
  def __call__(self, query_places_T, key_places_S) -> jax.Array | None:
    """Maps integer indices of queries and keys in the row to the bias, float32 [H, T, S].

    Returns None unless `config.positions` is `relative`.
    """
    if self.config.positions != 'relative':
      return None
    table = self.param(
      'table',
      nn.initializers.normal(self.config.model_dim**-0.5),
      (NUM_BUCKETS, self.config.num_heads),
    )
    distances_TS = key_places_S[None, :] - query_places_T[:, None]
    buckets_TS = relative_buckets(distances_TS, bidirectional=self.bidirectional)
    return jnp.moveaxis(jnp.take(table, buckets_TS, axis=0), -1, 0)
