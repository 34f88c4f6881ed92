"""A decoder-only model: source and target are one sequence of one stack of layers.

  --config.model.module=transformer.tools.architectures.prefix_lm:PrefixLM

The prefix LM of Raffel et al., 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer": source tokens see the whole source, and target tokens see it and the
targets before them.

Target positions begin again at 0, and a learned vector for each side tells it from the other. So
a target word is as near to a source word as both are in their sentences. If positions went on, the
distance would also depend on the length of the source.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.errors import UserError
from transformer.model.attention import KVCache, Layout
from transformer.model.config import ModelConfig
from transformer.model.layers import Embedding, Layer, Positions, normalisation
from transformer.model.remat import recomputed
from transformer.model.search_state import StateArray
from transformer.model.splits import SPLITS
from transformer.model.transformer import DecoderState, Source
from transformer.ops import linear
from transformer.ops.masks import causal_mask, lineage_mask, segment_mask

_NEEDED = {'share_embeddings': True, 'tie_output': True, 'output_bias': False,
           'decoder_layers': None}


class PrefixLayer(Layer):
  """A layer whose sources and targets can be computed one after the other, for a search."""

  def start(self, x_BSD, layout: Layout) -> tuple[jax.Array, KVCache]:
    """Returns the output of the sources [..., S, D], and their keys and values."""
    cache = None

    def attend(h_BSD):
      nonlocal cache
      cache = self.self_attention.cache(h_BSD, layout)
      return self.self_attention.attend_to_itself(h_BSD, layout)

    return self._apply_sublayers(x_BSD, attend, None, True), cache

  @nn.jit
  def extend(self, x_BWD, cache: KVCache, source: KVCache, layout: Layout, index
             ) -> tuple[jax.Array, KVCache]:
    """Decodes the newest tokens as `MultiHeadAttention.extend` does, after the sources."""
    slots = cache.keys.shape[-1]

    def attend(h_BWD):
      nonlocal cache
      # The sources come last, so that the slot of each target is where it is without sources.
      both = KVCache(jnp.concatenate([cache.keys, source.keys], axis=-1),
                     jnp.concatenate([cache.values, source.values], axis=-2))
      y_BWD, both = self.self_attention.extend(h_BWD, both, layout, index)
      cache = KVCache(both.keys[..., :slots], both.values[..., :slots, :])
      return y_BWD

    return self._apply_sublayers(x_BWD, attend, None, True), cache


class PrefixLM(nn.Module):
  """One stack of `num_layers` layers and one table of embeddings for source and target.

  Raises:
    UserError: the config has a second stack or table, or relative positions, which packed rows of
      two sides do not have.
  """

  config: ModelConfig
  vocabulary_size: int
  source_vocabulary_size: int | None = None

  splits = SPLITS

  def __post_init__(self):
    for name, value in _NEEDED.items():
      if getattr(self.config, name) != value:
        raise UserError(f'the prefix LM has one stack of layers and one table; set '
                        f'model.{name}={value}; got {getattr(self.config, name)}')
    if self.config.positions == 'relative':
      raise UserError('the prefix LM has no relative positions; set model.positions=rotary')
    super().__post_init__()

  def setup(self):
    config = self.config
    self.target_embedding = Embedding(config, self.vocabulary_size)
    self.position = Positions(config)
    self.side = self.param('side', nn.initializers.normal(config.model_dim ** -0.5),
                           (2, config.model_dim))
    self.layers = [PrefixLayer(config) for _ in range(config.num_layers)]
    if config.norm == 'pre':
      self.norm = normalisation(config)

  def __call__(self, tokens_BS, segments_BS, positions_BS, inputs_BT, segments_BT, positions_BT,
               *, deterministic=True):
    sources = tokens_BS.shape[-1]
    x_BSD = self._embed(tokens_BS, positions_BS, sources, 0, deterministic)
    x_BTD = self._embed(inputs_BT, positions_BT, inputs_BT.shape[-1], 1, deterministic)
    # L stands for the places of both sides.
    x_BLD = jnp.concatenate([x_BSD, x_BTD], axis=-2)
    segments_BL = jnp.concatenate([segments_BS, segments_BT], axis=-1)
    is_source_L = jnp.arange(segments_BL.shape[-1]) < sources
    visible_LL = causal_mask(segments_BL.shape[-1]) | is_source_L[None, :]
    mask_BLL = segment_mask(segments_BL, segments_BL) & visible_LL
    layout = Layout(mask_BLL, jnp.concatenate([positions_BS, positions_BT], axis=-1))

    def call(layer, x_BLD, layout):
      return layer(x_BLD, layout, deterministic=deterministic)

    call = recomputed(call) if self.config.remat else call
    for layer in self.layers:
      x_BLD = call(layer, x_BLD, layout)
    return self._normed(x_BLD)[..., sources:, :], self.target_embedding.table

  def start(self, tokens_BS, segments_BS, positions_BS, beams):
    x_BSD = self._embed(tokens_BS, positions_BS, tokens_BS.shape[-1], 0, True)
    layout = Layout(segment_mask(segments_BS, segments_BS), positions_BS)
    memory = []
    for layer in self.layers:
      x_BSD, cache = layer.start(x_BSD, layout)
      memory.append(cache.of_source())
    caches = tuple(layer.self_attention.empty_cache((len(tokens_BS),)).of_target(beams)
                   for layer in self.layers)
    lineage_BWT = jnp.zeros((len(tokens_BS), beams, 0), jnp.int32)
    return (Source(StateArray(segments_BS > 0, source_axis=-1), tuple(memory)),
            DecoderState(StateArray(lineage_BWT, time_axis=-1, by_hypothesis=True), caches))

  def step(self, tokens_BW, index, state, source):
    beams, length = state.lineage_BWT.shape[-2:]
    positions_BW = jnp.full(tokens_BW.shape, index, jnp.int32)
    x_BWD = self._embed(tokens_BW, positions_BW, length, 1, True)
    slots_W = jnp.arange(beams, dtype=jnp.int32)
    lineage_BWT = state.lineage_BWT.at[..., index].set(jnp.broadcast_to(slots_W, tokens_BW.shape))
    shown_BWS = jnp.repeat(source.is_token_BS[..., None, :], beams, axis=-2)
    layout = Layout(jnp.concatenate([lineage_mask(lineage_BWT, index), shown_BWS], axis=-1),
                    positions_BW)
    caches = []
    for layer, cache, memory in zip(self.layers, state.caches, source.memory, strict=True):
      x_BWD, cache = layer.extend(x_BWD, cache, memory, layout, index)
      caches.append(cache)
    logits_BWN = linear.logits(self._normed(x_BWD), self.target_embedding.table)
    return logits_BWN, DecoderState(lineage_BWT, tuple(caches))

  def _embed(self, tokens_BT, positions_BT, length, side, deterministic):
    added_BTD = jnp.broadcast_to(self.side[side], (*tokens_BT.shape, self.config.model_dim))
    places_BTD = self.position(positions_BT, length)
    if places_BTD is not None:
      added_BTD += places_BTD
    return self.target_embedding(tokens_BT, added_BTD, deterministic=deterministic)

  def _normed(self, x_BTD):
    return self.norm(x_BTD) if self.config.norm == 'pre' else x_BTD
