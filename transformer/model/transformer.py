"""The Transformer of figure 1: encoder, decoder, and the decoding step of a search."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer.model.attention import AttentionContext, RelativeBias
from transformer.model.config import ModelConfig
from transformer.model.flops import transformer_flops_per_token
from transformer.model.layers import Embedding, Layer, Positions, make_norm
from transformer.model.search_state import DecoderState, EncodedSource, KVCache
from transformer.model.sharding_rules import SHARDING_RULES, convert_matrices
from transformer.ops import linear
from transformer.ops.dropout import random_key
from transformer.ops.masks import causal_mask, combine_masks, lineage_mask, segment_mask
from transformer.ops.search import StateArray


class Transformer(nn.Module):
  """Encoder and decoder, with a shared vocabulary or with one for each.

  Attributes:
    vocabulary_size: number of target tokens, N.
    source_vocabulary_size: number of source tokens, if it differs.
  """

  config: ModelConfig
  vocabulary_size: int
  source_vocabulary_size: int | None = None

  sharding_rules = SHARDING_RULES

  def setup(self):
    config = self.config
    self.target_embedding = self.make_embedding(self.vocabulary_size)
    self.source_embedding = self.target_embedding
    if not config.share_embeddings:
      source_size = self.source_vocabulary_size or self.vocabulary_size
      self.source_embedding = self.make_embedding(source_size)
    self.source_position = self.make_positions()
    self.target_position = self.make_positions()
    self.encoder = [self.make_layer(cross=False) for _ in range(config.num_layers)]
    self.decoder = [self.make_layer(cross=True) for _ in range(config.decoder_depth)]
    self.encoder_bias = RelativeBias(config, bidirectional=True)
    self.decoder_bias = RelativeBias(config, bidirectional=False)
    is_pre_norm = config.norm_position == 'pre'  # With `post`, layers end with a norm.
    self.encoder_norm = make_norm(config) if is_pre_norm else lambda x: x
    self.decoder_norm = make_norm(config) if is_pre_norm else lambda x: x
    shape = (self.vocabulary_size, config.model_dim)
    if not config.tie_output:
      init = nn.initializers.normal(config.model_dim**-0.5)
      self.output = self.param('output', init, shape)
    self.output_bias = None
    if config.output_bias:
      self.output_bias = self.param('output_bias', nn.initializers.zeros, shape[:1])

  def make_layer(self, cross: bool) -> Layer:
    """Returns an encoder layer, or with `cross` a decoder layer; a subclass may override it."""
    return Layer(self.config, cross)

  def make_embedding(self, vocabulary_size: int) -> Embedding:
    """Returns the embedding of a vocabulary; a subclass may override it."""
    return Embedding(self.config, vocabulary_size)

  def make_positions(self) -> Positions:
    """Returns the position encoding; a subclass may override it."""
    return Positions(self.config)

  def encode(
    self, tokens_BS, segments_BS, positions_BS, *, deterministic=True
  ) -> jax.Array:
    """Encodes packed source rows to [B, S, D].

    Args:
      tokens_BS: int32 token ids.
      segments_BS: int32, number of the sentence in its row, from 1; 0 is padding.
      positions_BS: int32, position of the token in its sentence, from 0.
      deterministic: False enables dropout and requires a `dropout` random key.
    """
    length = tokens_BS.shape[-1]
    encoding_BSD = self.source_position(positions_BS, length)
    x_BSD = self.source_embedding(tokens_BS, encoding_BSD, deterministic=deterministic)
    row_indices_S = jnp.arange(length)
    mask_BSS = segment_mask(segments_BS, segments_BS)
    bias_HSS = self.encoder_bias(row_indices_S, row_indices_S)
    context = AttentionContext(mask_BSS, positions_BS, bias_HSS)
    call = self.layer_call(deterministic=deterministic)
    for layer in self.encoder:
      x_BSD = call(layer, x_BSD, context)
    return self.encoder_norm(x_BSD)

  def decode(
    self,
    inputs_BT,
    segments_BT,
    positions_BT,
    memory_BSD,
    source_segments_BS,
    deterministic=True,
  ) -> jax.Array:
    """Decodes packed target rows by teacher forcing to [B, T, D], the input of `logits`.

    Args:
      inputs_BT: int32, each target shifted right, starting with BOS.
      segments_BT, positions_BT: as for `encode`.
      memory_BSD: the encoded source.
      source_segments_BS: the `segments_BS` of `encode`.
    """
    length = inputs_BT.shape[-1]
    encoding_BTD = self.target_position(positions_BT, length)
    x_BTD = self.target_embedding(inputs_BT, encoding_BTD, deterministic=deterministic)
    same_sentence_BTT = segment_mask(segments_BT, segments_BT)
    mask_BTT = combine_masks(causal_mask(length), same_sentence_BTT)
    row_indices_T = jnp.arange(length)
    bias_HTT = self.decoder_bias(row_indices_T, row_indices_T)
    context = AttentionContext(mask_BTT, positions_BT, bias_HTT)
    source_context = AttentionContext(segment_mask(segments_BT, source_segments_BS))
    call = self.layer_call(deterministic=deterministic)
    for layer in self.decoder:
      source_keys_values = layer.cross_attention.keys_values(memory_BSD)
      x_BTD = call(layer, x_BTD, context, source_keys_values, source_context)
    return self.decoder_norm(x_BTD)

  def layer_call(self, *, deterministic) -> Callable[..., Any]:
    """Returns a function (layer, *inputs) that calls a layer.

    With `config.remat`, the backward pass recomputes the layer (Chen et al., 2016).
    """

    def call(layer, *inputs):
      return layer(*inputs, deterministic=deterministic)

    return nn.remat(call) if self.config.remat else call

  @property
  def output_ND(self) -> jax.Array:
    """The output projection: the target embeddings if tied, else a separate matrix."""
    return self.target_embedding.table if self.config.tie_output else self.output

  def logits(self, x_BTD) -> jax.Array:
    """Maps the output of `decode` [..., D] to logits, float32 [..., N]."""
    logits_BTN = linear.logits(x_BTD, self.output_ND)
    if self.output_bias is None:
      return logits_BTN
    return logits_BTN + jnp.broadcast_to(self.output_bias, logits_BTN.shape)

  def layer_logits(self, x_BTD) -> jax.Array:
    """Maps the output of a decoder layer [..., D] to logits, as if it were the last layer."""
    return self.logits(self.decoder_norm(x_BTD.astype(self.config.dtype)))

  def __call__(self, *batch, deterministic=True) -> tuple[jax.Array, jax.Array]:
    """Encodes the source, and decodes the target by teacher forcing.

    Args:
      *batch: the first three arguments of `encode`, then the first three arguments of `decode`.
      deterministic: as for `encode`.

    Returns:
      The decoder output [B, T, D] and the output projection [N, D], the arguments of `ops.losses`.
      Their product, `ops.linear.logits`, is the logits. With `output_bias`, both have one extra
      dim, or two in 16 bits.
    """
    source, target = batch[:3], batch[3:]
    memory_BSD = self.encode(*source, deterministic=deterministic)
    x_BTD = self.decode(*target, memory_BSD, source[1], deterministic=deterministic)
    return linear.fold_bias(x_BTD, self.output_ND, self.output_bias)

  def start(
    self, tokens_BS, segments_BS, positions_BS, beams
  ) -> tuple[DecoderState, EncodedSource]:
    """Encodes sources for a search; returns initial state and source, pytrees of `StateArray`s.

    Args:
      tokens_BS, segments_BS, positions_BS: as for `encode`, with one sentence per row.
      beams: number of hypotheses per source, W.
    """
    caches = self.source_caches(tokens_BS, segments_BS, positions_BS)
    is_token_BS = StateArray(segments_BS > 0, source_axis=-1)
    source = EncodedSource(is_token_BS, tuple(cache.source_state() for cache in caches))
    lineage_BWT = jnp.zeros((len(tokens_BS), beams, 0), jnp.int32)
    empty_BTD = jnp.zeros((len(tokens_BS), 0, self.config.model_dim), self.config.dtype)
    caches = tuple(
      layer.self_attention.cache(empty_BTD).target_state(beams)
      for layer in self.decoder
    )
    return DecoderState(
      StateArray(lineage_BWT, time_axis=-1, per_hypothesis=True), caches
    ), source

  def source_caches(self, tokens_BS, segments_BS, positions_BS) -> list[KVCache]:
    """Returns the source keys and values of each decoder layer; a subclass may override it."""
    memory_BSD = self.encode(tokens_BS, segments_BS, positions_BS)
    return [layer.cross_attention.cache(memory_BSD) for layer in self.decoder]

  def step(
    self, tokens_BW, index, state: DecoderState, source: EncodedSource
  ) -> tuple[jax.Array, DecoderState]:
    """Decodes the latest token of W hypotheses for each of B sources.

    Args:
      tokens_BW: int32, the latest token of each hypothesis; BOS at first.
      index: scalar int32, the position of the latest token.
      state, source: from `start`, as plain arrays; the state has T slots, filled below `index`.

    Returns:
      float32 logits [B, W, N] of the next token, and the state, now also filled at `index`.
    """
    lineage_BWT = state.lineage_BWT
    beams, length = lineage_BWT.shape[-2:]
    positions_BW = jnp.full(tokens_BW.shape, index, jnp.int32)
    encoding_BWD = self.target_position(positions_BW, length)
    x_BWD = self.target_embedding(tokens_BW, encoding_BWD, deterministic=True)
    slots_W = jnp.arange(beams, dtype=jnp.int32)
    newest_BW = jnp.broadcast_to(slots_W, tokens_BW.shape)
    lineage_BWT = lineage_BWT.at[..., index].set(newest_BW)
    context = AttentionContext(
      lineage_mask(lineage_BWT, index),
      positions_BW,
      self.decoder_bias(jnp.full(1, index), jnp.arange(length * beams) // beams),
    )
    is_token_BS = source.is_token_BS
    shape = (*tokens_BW.shape, is_token_BS.shape[-1])
    source_context = AttentionContext(
      jnp.broadcast_to(is_token_BS[..., None, :], shape)
    )
    caches = []
    for layer, cache, source_cache in zip(
      self.decoder, state.caches, source.caches, strict=True
    ):
      inputs = x_BWD, cache, context, index, source_cache, source_context
      x_BWD, cache = layer.step(*inputs)
      caches.append(cache)
    return self.layer_logits(x_BWD), DecoderState(lineage_BWT, tuple(caches))

  def search_params(self, params) -> Any:
    """Returns parameters for searches, with matrices converted to the type of activations."""
    return convert_matrices(params, self.config.dtype)

  def flops(self, *lengths) -> tuple[float, float]:
    """Returns the FLOPs of a training step per source and target token, for rows of `lengths`."""
    return transformer_flops_per_token(self.config, self.vocabulary_size, *lengths)


def init_params(model: nn.Module, seed: int) -> Any:
  """Returns random parameters, a function of only the model and the seed."""
  side = jnp.zeros((1, 2), jnp.int32)
  return model.init(random_key(seed), *[side] * 6)['params']
