"""A decoder-only model: source and target are one sequence of one stack of layers.

  --config.model.module=transformer.tools.architectures.prefix_lm:PrefixLM

The prefix LM of Raffel et al., 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer": source tokens see the whole source, and target tokens see it and the
targets before them. The source cannot see the target, so its keys and values are computed first.

Target positions begin again at 0, and a learned vector tells target tokens from source tokens. So
a target word is as near to a source word as both are in their sentences. If positions continued,
the distance would also depend on the length of the source.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.errors import UserError
from transformer.model.attention import KVCache, Layout
from transformer.model.layers import Layer
from transformer.model.search_state import StateArray
from transformer.model.transformer import DecoderState, Source, Transformer
from transformer.ops import linear
from transformer.ops.masks import causal_mask, combine_masks, lineage_mask, segment_mask

_UNUSED = {'decoder_layers': None, 'remat': False}


class PrefixLayer(Layer):
  """A layer that may attend to keys and values of earlier tokens, too."""

  def read(self, x_BTD, layout: Layout, before=None, *, deterministic):
    """Maps [..., T, D] to [..., T, D]; also returns the keys and values of these tokens.

    `before` is the keys and values of the source, which the mask has first.
    """
    attention = self.self_attention
    keys_values = ()

    def attend(h_BTD):
      nonlocal keys_values
      keys_values = attention.keys_values(h_BTD, layout)
      visible = keys_values
      if before is not None:
        visible = jax.tree.map(_joined, before, keys_values)
      return attention(h_BTD, visible, layout, deterministic=deterministic)

    x_BTD = self._apply_sublayers(x_BTD, attend, None, deterministic)
    return x_BTD, keys_values

  @nn.jit
  def extend(self, x_BWD, cache: KVCache, source: KVCache, layout: Layout, index):
    """Decodes the newest tokens as `MultiHeadAttention.extend` does; the mask has the source last.

    There, it leaves the slots of targets where they are without a source.
    """
    slots = cache.keys.shape[-1]

    def attend(h_BWD):
      nonlocal cache
      keys_BHKS = jnp.concatenate([cache.keys, source.keys], axis=-1)
      values_BHSV = jnp.concatenate([cache.values, source.values], axis=-2)
      y_BWD, both = self.self_attention.extend(
          h_BWD, KVCache(keys_BHKS, values_BHSV), layout, index)
      cache = KVCache(both.keys[..., :slots], both.values[..., :slots, :])
      return y_BWD

    x_BWD = self._apply_sublayers(x_BWD, attend, None, True)
    return x_BWD, cache


def _joined(before_BSHK, after_BTHK):
  return jnp.concatenate([before_BSHK, after_BTHK], axis=-3)


class PrefixLM(Transformer):
  """One stack of `num_layers` layers for source and target; `encode` returns its source part.

  Raises:
    UserError: the config has a second stack, relative positions or `remat`.
  """

  def __post_init__(self):
    for name, value in _UNUSED.items():
      if getattr(self.config, name) != value:
        raise UserError(f'the prefix LM needs model.{name}={value}; '
                        f'got {getattr(self.config, name)}')
    if self.config.positions == 'relative':
      raise UserError('the prefix LM has no relative positions; set model.positions=rotary')
    super().__post_init__()

  def setup(self):
    super().setup()
    self.target_side = self.param('target_side', nn.initializers.normal(0.02),
                                  (self.config.model_dim,))

  def make_layer(self, cross):
    del cross  # The layers of the decoder are never called, and have no parameters.
    return PrefixLayer(self.config)

  def __call__(self, *batch, deterministic=True):
    memory = self._memory(*batch[:3], deterministic=deterministic)
    inputs_BT, segments_BT, positions_BT = batch[3:]
    length = inputs_BT.shape[-1]
    own_BTT = combine_masks(causal_mask(length), segment_mask(segments_BT, segments_BT))
    source_BTS = segment_mask(segments_BT, batch[1])
    layout = Layout(jnp.concatenate([source_BTS, own_BTT], axis=-1), positions_BT)
    x_BTD = self._embedded(inputs_BT, positions_BT, length, deterministic)
    for layer, before in zip(self.encoder, memory, strict=True):
      x_BTD, _ = layer.read(x_BTD, layout, before, deterministic=deterministic)
    return linear.with_bias(self._normed(x_BTD), self.output_ND, self.output_bias)

  def start(self, tokens_BS, segments_BS, positions_BS, beams):
    memory = []
    for keys_BSHK, values_BSHV in self._memory(tokens_BS, segments_BS, positions_BS):
      cache = KVCache(jnp.moveaxis(keys_BSHK, -3, -1), jnp.moveaxis(values_BSHV, -3, -2))
      memory.append(cache.of_source())
    batch = len(tokens_BS)
    caches = tuple(layer.self_attention.empty_cache((batch,)).of_target(beams)
                   for layer in self.encoder)
    lineage_BWT = jnp.zeros((batch, beams, 0), jnp.int32)
    return (Source(StateArray(segments_BS > 0, source_axis=-1), tuple(memory)),
            DecoderState(StateArray(lineage_BWT, time_axis=-1, by_hypothesis=True), caches))

  def step(self, tokens_BW, index, state, source):
    beams, length = state.lineage_BWT.shape[-2:]
    positions_BW = jnp.full(tokens_BW.shape, index, jnp.int32)
    slots_BW = jnp.broadcast_to(jnp.arange(beams, dtype=jnp.int32), tokens_BW.shape)
    lineage_BWT = state.lineage_BWT.at[..., index].set(slots_BW)
    source_BWS = jnp.repeat(source.is_token_BS[..., None, :], beams, axis=-2)
    mask_BWS = jnp.concatenate([lineage_mask(lineage_BWT, index), source_BWS], axis=-1)
    layout = Layout(mask_BWS, positions_BW)
    x_BWD = self._embedded(tokens_BW, positions_BW, length, True)
    caches = []
    for layer, cache, memory in zip(self.encoder, state.caches, source.memory, strict=True):
      x_BWD, cache = layer.extend(x_BWD, cache, memory, layout, index)
      caches.append(cache)
    return self.logits(self._normed(x_BWD)), DecoderState(lineage_BWT, tuple(caches))

  def _memory(self, tokens_BS, segments_BS, positions_BS, deterministic=True):
    """Returns the keys and values of the sources, for each layer."""
    places_BSD = self.source_position(positions_BS, tokens_BS.shape[-1])
    x_BSD = self.source_embedding(tokens_BS, places_BSD, deterministic=deterministic)
    layout = Layout(segment_mask(segments_BS, segments_BS), positions_BS)
    memory = []
    for layer in self.encoder:
      x_BSD, keys_values = layer.read(x_BSD, layout, deterministic=deterministic)
      memory.append(keys_values)
    return memory

  def _embedded(self, tokens_BT, positions_BT, length, deterministic):
    added_BTD = jnp.broadcast_to(self.target_side, (*tokens_BT.shape, self.config.model_dim))
    places_BTD = self.target_position(positions_BT, length)
    if places_BTD is not None:
      added_BTD += places_BTD
    return self.target_embedding(tokens_BT, added_BTD, deterministic=deterministic)

  def _normed(self, x_BTD):
    return self.encoder_norm(x_BTD) if self.config.norm == 'pre' else x_BTD
