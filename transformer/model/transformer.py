"""The Transformer of figure 1: encoder, decoder, and one step of decoding."""

import flax.linen as nn
import jax.numpy as jnp

from transformer.model.attention import (
  Cache,
  KeysValues,
  MultiHeadAttention,
  Placement,
  RelativeBias,
)
from transformer.model.config import ModelConfig
from transformer.model.layers import Embedding, FeedForward, Positions, Residual, normalisation
from transformer.model.remat import recomputed
from transformer.ops.masks import causal_mask, combine_masks, lineage_mask, segment_mask


class EncoderLayer(nn.Module):
  """A Transformer block, section 3.1: self-attention, feed-forward, residuals and norms."""

  config: ModelConfig

  def setup(self):
    self.self_attention = MultiHeadAttention(self.config)
    self.self_attention_residual = Residual(self.config)
    self.feed_forward = FeedForward(self.config)
    self.feed_forward_residual = Residual(self.config)

  def __call__(self, x_BSD, mask_BSS, placement: Placement, *, deterministic):
    def attend(h_BSD):
      memory = self.self_attention.keys_values(h_BSD, placement)
      return self.self_attention(h_BSD, memory, mask_BSS, placement)

    x_BSD = self.self_attention_residual(x_BSD, attend, deterministic=deterministic)
    return self.feed_forward_residual(x_BSD, self.feed_forward, deterministic=deterministic)


class DecoderLayer(nn.Module):
  """Section 3.1 again: masked self-attention, attention to the source, then feed-forward."""

  config: ModelConfig

  def setup(self):
    self.self_attention = MultiHeadAttention(self.config)
    self.self_attention_residual = Residual(self.config)
    self.cross_attention = MultiHeadAttention(self.config)
    self.cross_attention_residual = Residual(self.config)
    self.feed_forward = FeedForward(self.config)
    self.feed_forward_residual = Residual(self.config)

  def __call__(self, x_BTD, mask_BTT, placement: Placement, memory: KeysValues, memory_mask_BTS, *,
               deterministic):
    def attend(h_BTD):
      own = self.self_attention.keys_values(h_BTD, placement)
      return self.self_attention(h_BTD, own, mask_BTT, placement)

    return self._around(x_BTD, attend,
                        lambda h_BTD: self.cross_attention(h_BTD, memory, memory_mask_BTS),
                        deterministic)

  @nn.jit
  def step(self, x_BWD, cache: Cache, mask_BWT, index, placement: Placement, memory: Cache,
           memory_mask_BWS):
    """The same for one new position of W hypotheses, which share the source."""
    def attend(h_BWD):
      nonlocal cache
      y_BWD, cache = self.self_attention.extend(h_BWD, cache, mask_BWT, index, placement)
      return y_BWD

    x_BWD = self._around(x_BWD, attend,
                         lambda h_BWD: self.cross_attention.attend(h_BWD, memory, memory_mask_BWS),
                         True)
    return x_BWD, cache

  def _around(self, x_BTD, attend, attend_to_source, deterministic):
    """The three sublayers, of which two are not the same for whole targets and single steps."""
    x_BTD = self.self_attention_residual(x_BTD, attend, deterministic=deterministic)
    x_BTD = self.cross_attention_residual(x_BTD, attend_to_source, deterministic=deterministic)
    return self.feed_forward_residual(x_BTD, self.feed_forward, deterministic=deterministic)


class Transformer(nn.Module):
  """Encoder and decoder over one vocabulary.

  Attributes:
    config: its shape.
    vocabulary_size: number of tokens, N.
  """

  config: ModelConfig
  vocabulary_size: int

  def setup(self):
    config = self.config
    self.target_embedding = Embedding(config, self.vocabulary_size)
    self.source_embedding = (
        self.target_embedding if config.share_embeddings
        else Embedding(config, self.vocabulary_size))
    self.source_position = Positions(config)
    self.target_position = Positions(config)
    self.encoder = [EncoderLayer(config) for _ in range(config.num_layers)]
    self.decoder = [DecoderLayer(config) for _ in range(config.num_layers)]
    if config.norm == 'pre':
      self.encoder_norm = normalisation(config)
      self.decoder_norm = normalisation(config)
    relative = config.positions == 'relative'
    self.encoder_bias = RelativeBias(config, bidirectional=True) if relative else None
    self.decoder_bias = RelativeBias(config, bidirectional=False) if relative else None
    if not config.tie_output:
      self.output = self.param('output', nn.initializers.normal(config.model_dim ** -0.5),
                               (self.vocabulary_size, config.model_dim))

  def encode(self, tokens_BS, segments_BS, positions_BS, *, deterministic=True):
    """Encodes packed source rows.

    Args:
      tokens_BS: int32 token ids.
      segments_BS: int32, which sentence of the row a token belongs to; 0 is padding.
      positions_BS: int32, a token's place in its sentence, from 0.
      deterministic: False turns dropout on and needs a `dropout` random key.

    Returns:
      [B, S, D].
    """
    x_BSD = self.source_embedding(
        tokens_BS, self.source_position(positions_BS, tokens_BS.shape[-1]),
        deterministic=deterministic)
    mask_BSS = segment_mask(segments_BS, segments_BS)
    placement = _placement(positions_BS, self.encoder_bias, jnp.arange(tokens_BS.shape[-1]))
    call = self._layer_call(deterministic)
    for layer in self.encoder:
      x_BSD = call(layer, x_BSD, mask_BSS, placement)
    return self.encoder_norm(x_BSD) if self.config.norm == 'pre' else x_BSD

  def project_memory(self, memory_BSD) -> tuple[KeysValues, ...]:
    """The keys and values of the encoded source, for each decoder layer."""
    return tuple(layer.cross_attention.keys_values(memory_BSD) for layer in self.decoder)

  def cache_memory(self, memory_BSD) -> tuple[Cache, ...]:
    """The same, as `step` reads it."""
    return tuple(layer.cross_attention.cache(memory_BSD) for layer in self.decoder)

  def decode(self, inputs_BT, segments_BT, positions_BT, memory_BSD, source_segments_BS, *,
             deterministic=True):
    """Decodes whole, packed targets by teacher forcing.

    Args:
      inputs_BT: int32, the target shifted right: position t holds token t − 1.
      segments_BT: int32 target segments, numbered as the source's.
      positions_BT: int32, a token's place in its sentence, from 0.
      memory_BSD: the encoded source.
      source_segments_BS: int32.
      deterministic: False turns dropout on and needs a `dropout` random key.

    Returns:
      [B, T, D]; `logits` makes scores of it.
    """
    length = inputs_BT.shape[-1]
    x_BTD = self.target_embedding(inputs_BT, self.target_position(positions_BT, length),
                                  deterministic=deterministic)
    mask_BTT = combine_masks(causal_mask(length), segment_mask(segments_BT, segments_BT))
    memory_mask_BTS = segment_mask(segments_BT, source_segments_BS)
    placement = _placement(positions_BT, self.decoder_bias, jnp.arange(length))
    call = self._layer_call(deterministic)
    for layer, memory in zip(self.decoder, self.project_memory(memory_BSD), strict=True):
      x_BTD = call(layer, x_BTD, mask_BTT, placement, memory, memory_mask_BTS)
    return self.decoder_norm(x_BTD) if self.config.norm == 'pre' else x_BTD

  def _layer_call(self, deterministic):
    """A layer's call as a function (layer, …), whose insides `remat` computes twice."""
    def call(layer, *inputs):
      return layer(*inputs, deterministic=deterministic)
    return recomputed(call) if self.config.remat else call

  @property
  def output_ND(self):
    """The output projection: the target embeddings, or a matrix of its own."""
    return self.target_embedding.table if self.config.tie_output else self.output

  def logits(self, x_BTD):
    """Scores over the vocabulary: [..., D] to float32 [..., N]."""
    return jnp.einsum('...D,ND->...N', x_BTD, self.output_ND.astype(x_BTD.dtype),
                      preferred_element_type=jnp.float32)

  def __call__(self, source_BS, source_segments_BS, source_positions_BS,
               inputs_BT, target_segments_BT, target_positions_BT, *, deterministic=True):
    """Encodes, and decodes by teacher forcing.

    Returns:
      The decoder's output [B, T, D] and the output projection [N, D], which
      `ops.losses` takes apart from each other; `logits` multiplies them.
    """
    memory_BSD = self.encode(source_BS, source_segments_BS, source_positions_BS,
                             deterministic=deterministic)
    x_BTD = self.decode(inputs_BT, target_segments_BT, target_positions_BT, memory_BSD,
                        source_segments_BS, deterministic=deterministic)
    return x_BTD, self.output_ND

  def empty_cache(self, leading, beams, length) -> tuple[Cache, ...]:
    """A self-attention cache with room for `length` positions, for each decoder layer.

    Args:
      leading: the cache's leading axes, such as (B,).
      beams: hypotheses of an input, W.
      length: number of positions, T.

    Returns:
      One `Cache` of zeros a layer, with a slot for every hypothesis of every
      position: [*leading, H, K, T · W] and [*leading, H, T · W, V].
    """
    config = self.config
    heads = (*leading, config.num_heads)
    return tuple(
        Cache(jnp.zeros((*heads, config.head_key_dim, length * beams), config.dtype),
              jnp.zeros((*heads, length * beams, config.head_value_dim), config.dtype))
        for _ in range(config.num_layers))

  def step(self, tokens_BW, index, lineage_BWT, cache, memory, source_mask_BS):
    """Decodes one position of W hypotheses for each of B sources.

    The cache of a source is one for all its hypotheses and is never rearranged.
    What is rearranged, when a search lets some hypotheses go and splits others, is
    their lineage: which slot of each position is a hypothesis's own past.

    Args:
      tokens_BW: int32, the last token of each hypothesis; the begin token first.
      index: scalar int32, the position of that token.
      lineage_BWT: int32, the slot in 0 … W − 1 that each earlier token of a
        hypothesis had when it was new; zeros at first.
      cache: from `empty_cache((B,), W, T)`, filled below `index`.
      memory: from `cache_memory`; the beams share it.
      source_mask_BS: boolean, True at the source's real tokens.

    Returns:
      float32 logits [B, W, N] of the next token, the lineage with the new
      position, and the cache filled at `index`.

    Raises:
      ValueError: learned positions end before T.
    """
    beams, length = lineage_BWT.shape[-2:]
    if self.config.positions == 'learned' and length > self.config.max_positions:
      raise ValueError(f'learned positions end at model.max_positions={self.config.max_positions}; '
                       f'got a length of {length}')
    positions_BW = jnp.full(tokens_BW.shape, index, jnp.int32)
    x_BWD = self.target_embedding(tokens_BW, self.target_position(positions_BW, length),
                                  deterministic=True)
    placement = _placement(positions_BW, self.decoder_bias, jnp.full(1, index),
                           jnp.arange(length * beams) // beams)
    slots_W = jnp.arange(beams, dtype=jnp.int32)
    lineage_BWT = lineage_BWT.at[..., index].set(jnp.broadcast_to(slots_W, tokens_BW.shape))
    mask_BWT = lineage_mask(lineage_BWT, index)
    memory_mask_BWS = jnp.broadcast_to(source_mask_BS[..., None, :],
                                       (*tokens_BW.shape, source_mask_BS.shape[-1]))
    new_cache = []
    for layer, layer_cache, layer_memory in zip(self.decoder, cache, memory, strict=True):
      x_BWD, layer_cache = layer.step(x_BWD, layer_cache, mask_BWT, index, placement, layer_memory,
                                      memory_mask_BWS)
      new_cache.append(layer_cache)
    if self.config.norm == 'pre':
      x_BWD = self.decoder_norm(x_BWD)
    return self.logits(x_BWD), lineage_BWT, tuple(new_cache)


def _placement(positions_BT, bias: RelativeBias | None, query_places_T, key_places_S=None):
  """What self-attention is told of positions, and of distances if there is a bias for them.

  Sentences lie in a row without gaps, so that places in the row are as far apart
  as positions in the sentence. Without places of their own, keys have the queries'.
  """
  keys = query_places_T if key_places_S is None else key_places_S
  return Placement(positions_BT, None if bias is None else bias(query_places_T, keys))
