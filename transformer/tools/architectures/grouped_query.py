"""A model with grouped-query attention and scaled rotary positions.

  --config.model.positions=rotary --config.model.module="(
      'transformer.tools.architectures.grouped_query:GroupedQueryTransformer',
      {'kv_heads': 2, 'position_divisor': 2.0})"

Several query heads share one key and value head (Ainslie et al., 2023, "GQA"), so caches are
smaller. Rotary positions are divided by a factor (Chen et al., 2023, "Extending Context Window of
Large Language Models via Positional Interpolation"), so longer sentences have the rotation angles
of shorter ones.
"""

import jax.numpy as jnp

from transformer.errors import UserError
from transformer.model.attention import NO_CONTEXT, MultiHeadAttention
from transformer.model.layers import Layer
from transformer.model.search_state import KVCache
from transformer.model.transformer import Transformer


class GroupedQueryAttention(MultiHeadAttention):
  """Multi-head attention with `kv_heads` heads of keys, values and caches."""

  kv_heads: int = 1
  position_divisor: float = 1.0

  @property
  def key_value_heads(self):
    return self.kv_heads

  def __call__(self, x_BTD, keys_values, context=NO_CONTEXT, *, deterministic=True):
    """Attends as `MultiHeadAttention` does, to keys and values of `kv_heads` heads."""
    keys_BSHK, values_BSHV = keys_values
    repeated = self._repeated(keys_BSHK, axis=-2), self._repeated(values_BSHV, axis=-2)
    return super().__call__(x_BTD, repeated, context, deterministic=deterministic)

  def attend_to_cache(self, x_BWD, cache, context):
    """Attends as the base class does; repeated heads exist only within this layer."""
    keys_BHKS = self._repeated(cache.keys, axis=-3)
    values_BHSV = self._repeated(cache.values, axis=-3)
    return super().attend_to_cache(x_BWD, KVCache(keys_BHKS, values_BHSV), context)

  def self_attend(self, x_BTD, context, *, deterministic=True):
    return super().self_attend(
      x_BTD, self._scaled(context), deterministic=deterministic
    )

  def self_attend_step(self, x_BWD, cache, context, index):
    return super().self_attend_step(x_BWD, cache, self._scaled(context), index)

  def _repeated(self, array, axis):
    """Repeats keys or values for each query head; adjacent heads share them."""
    return jnp.repeat(array, self.config.num_heads // self.kv_heads, axis=axis)

  def _scaled(self, context):
    """Divides the positions; rotary positions can be fractional."""
    return context._replace(positions_BT=context.positions_BT / self.position_divisor)


class GroupedQueryLayer(Layer):
  """A layer with grouped-query attention."""

  kv_heads: int = 1
  position_divisor: float = 1.0

  def make_attention(self, cross):
    """Returns self-attention, or with `cross` cross-attention."""
    return GroupedQueryAttention(self.config, self.kv_heads, self.position_divisor)


class GroupedQueryTransformer(Transformer):
  """A Transformer with grouped-query attention.

  Attributes:
    kv_heads: number of key and value heads; it divides `num_heads`. 1 is multi-query attention
      (Shazeer, 2019), and `num_heads` is multi-head attention.
    position_divisor: the divisor of rotary positions.

  Raises:
    UserError: `kv_heads` does not divide `num_heads`, or `position_divisor` has no effect.
  """

  kv_heads: int = 1
  position_divisor: float = 1.0

  def __post_init__(self):
    heads = self.config.num_heads
    if self.kv_heads < 1 or heads % self.kv_heads:
      raise UserError(
        f'kv_heads must divide num_heads; got kv_heads={self.kv_heads}, num_heads={heads}'
      )
    if not self.position_divisor > 0.0:
      raise UserError(f'position_divisor must be above 0; got {self.position_divisor}')
    if self.position_divisor != 1.0 and self.config.positions != 'rotary':
      raise UserError(
        f'position_divisor divides rotary positions; set model.positions=rotary; '
        f'got {self.config.positions}'
      )
    super().__post_init__()

  def make_layer(self, cross):
    """Returns an encoder layer, or with `cross` a decoder layer."""
    return GroupedQueryLayer(self.config, cross, self.kv_heads, self.position_divisor)

  def flops(self, source_length=0, target_length=0):
    """Counts as `Transformer.flops` does, minus the projections of removed key and value heads.

    Keys and values of cross-attention are counted per source token.
    """
    config = self.config
    heads = config.num_heads - self.kv_heads
    missing = (
      6.0 * config.model_dim * heads * (config.head_key_dim + config.head_value_dim)
    )
    source, target = super().flops(source_length, target_length)
    return (
      source - missing * (config.num_layers + config.decoder_depth),
      target - missing * config.decoder_depth,
    )
