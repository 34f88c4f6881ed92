"""A decoder-only model: one stack of layers processes source and target as one sequence.

  --config.model.module=transformer.tools.architectures.prefix_lm:PrefixLM

The prefix LM of Raffel et al., 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer": source tokens attend to the whole source, and target tokens attend to the
source and to earlier target tokens. The source does not attend to the target, so its keys and
values are computed first.

Target positions restart at 0, and a learned vector distinguishes source tokens from target tokens.
So the distance between a target word and a source word depends only on their positions in their
sentences. If positions continued, the distance would also depend on the length of the source.
"""

import flax.linen as nn
import jax.numpy as jnp

from transformer.errors import UserError
from transformer.model.attention import AttentionContext
from transformer.model.layers import Layer
from transformer.model.search_state import KVCache
from transformer.model.transformer import Transformer
from transformer.ops import linear
from transformer.ops.masks import causal_mask, segment_mask


class PrefixLayer(Layer):
  """A layer that can also attend to the keys and values of the source."""

  def __call__(self, x_BTD, context: AttentionContext, source=None, *, deterministic):
    """Maps [..., T, D] to [..., T, D]; also returns the keys and values of these tokens.

    If `source`, its keys and values, is given, it comes first in the context's mask.
    """
    attention = self.self_attention
    keys_values = ()

    def attend(h_BTD):
      nonlocal keys_values
      keys_values = attention.keys_values(h_BTD, context)
      visible = keys_values
      if source is not None:
        visible = [
          jnp.concatenate(pair, axis=-3)
          for pair in zip(source, keys_values, strict=True)
        ]
      return attention(h_BTD, visible, context, deterministic=deterministic)

    x_BTD = self.apply_sublayers(x_BTD, context, attend, None, deterministic)
    return x_BTD, keys_values

  @nn.jit
  def step(self, x_BWD, cache, context, index, source_cache, source_context):
    """Decodes as `Layer.step` does, with one attention to both target and source.

    The source comes last, so that cache slots of the target have the same indices as without it.
    """
    slots = cache.keys.shape[-1]
    mask_BWS = jnp.concatenate([context.mask_BTS, source_context.mask_BTS], axis=-1)
    context = context._replace(mask_BTS=mask_BWS)

    def attend(h_BWD):
      nonlocal cache
      keys_BHKS = jnp.concatenate([cache.keys, source_cache.keys], axis=-1)
      values_BHSV = jnp.concatenate([cache.values, source_cache.values], axis=-2)
      y_BWD, joint = self.self_attention.self_attend_step(
        h_BWD, KVCache(keys_BHKS, values_BHSV), context, index
      )
      cache = KVCache(joint.keys[..., :slots], joint.values[..., :slots, :])
      return y_BWD

    x_BWD = self.apply_sublayers(x_BWD, context, attend, None, True)
    return x_BWD, cache


class PrefixLM(Transformer):
  """One stack, the decoder, for source and target; the encoder's layers are never called.

  Raises:
    UserError: the config has relative positions.
  """

  def __post_init__(self):
    if self.config.positions == 'relative':
      raise UserError(
        'the prefix LM has no relative positions; set model.positions=rotary'
      )
    super().__post_init__()

  def setup(self):
    super().setup()
    self.source_side = self.param(
      'source_side', nn.initializers.normal(0.02), (self.config.model_dim,)
    )

  def make_layer(self, cross):
    return PrefixLayer(self.config)

  def encode(self, tokens_BS, segments_BS, positions_BS, *, deterministic=True):
    x_BSD, _ = self._read_source(tokens_BS, segments_BS, positions_BS, deterministic)
    return self.decoder_norm(x_BSD)

  def __call__(self, *batch, deterministic=True):
    source_segments_BS = batch[1]
    inputs_BT, segments_BT, positions_BT = batch[3:]
    length = inputs_BT.shape[-1]
    _, keys_values_by_layer = self._read_source(*batch[:3], deterministic)
    to_target_BTT = segment_mask(segments_BT, segments_BT)
    to_target_BTT &= jnp.broadcast_to(causal_mask(length), to_target_BTT.shape)
    to_source_BTS = segment_mask(segments_BT, source_segments_BS)
    context = AttentionContext(
      jnp.concatenate([to_source_BTS, to_target_BTT], axis=-1), positions_BT
    )
    encoding_BTD = self.target_position(positions_BT, length)
    x_BTD = self.target_embedding(inputs_BT, encoding_BTD, deterministic=deterministic)
    call = self.layer_call(deterministic=deterministic)
    for layer, source in zip(self.decoder, keys_values_by_layer, strict=True):
      x_BTD, _ = call(layer, x_BTD, context, source)
    return linear.fold_bias(self.decoder_norm(x_BTD), self.output_ND, self.output_bias)

  def source_caches(self, tokens_BS, segments_BS, positions_BS):
    _, keys_values_by_layer = self._read_source(
      tokens_BS, segments_BS, positions_BS, True
    )
    return [
      KVCache.from_keys_values(*keys_values) for keys_values in keys_values_by_layer
    ]

  def _read_source(self, tokens_BS, segments_BS, positions_BS, deterministic):
    """Returns the last layer's output, and the keys and values of each layer."""
    added_BSD = jnp.broadcast_to(
      self.source_side, (*tokens_BS.shape, self.config.model_dim)
    )
    encoding_BSD = self.source_position(positions_BS, tokens_BS.shape[-1])
    if encoding_BSD is not None:
      added_BSD += encoding_BSD
    x_BSD = self.source_embedding(tokens_BS, added_BSD, deterministic=deterministic)
    context = AttentionContext(segment_mask(segments_BS, segments_BS), positions_BS)
    call = self.layer_call(deterministic=deterministic)
    keys_values_by_layer = []
    for layer in self.decoder:
      x_BSD, keys_values = call(layer, x_BSD, context)
      keys_values_by_layer.append(keys_values)
    return x_BSD, keys_values_by_layer

  def flops(self, source_length=0, target_length=0):
    config = self.config
    heads = config.num_heads * (config.head_key_dim + config.head_value_dim)
    inner = (3 if config.activation == 'swiglu' else 2) * config.ff_dim
    layer = config.model_dim * (2 * heads + inner)
    source = config.decoder_depth * (layer + heads * source_length)
    target = config.decoder_depth * (layer + heads * (source_length + target_length))
    return 6.0 * source, 6.0 * (target + config.model_dim * self.vocabulary_size)
