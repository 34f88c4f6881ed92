"""The attention weights of every head of every layer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.model.attention import WEIGHTS
from transformer.model.transformer import Transformer


class AttentionWeights(NamedTuple):
  """Attention weights of all layers, float32; a row sums to one, or to zero for padding.

  L is the number of layers of the stack: the encoder's for `encoder`, else the decoder's.

  Attributes:
    encoder: [L, B, H, T, S], self-attention of the source, T = S.
    decoder: [L, B, H, T, S], masked self-attention of the target, T = S.
    cross: [L, B, H, T, S], attention from the target to the source.
  """

  encoder: jax.Array
  decoder: jax.Array
  cross: jax.Array


def attention_weights(model: Transformer, params, *batch, layer: int | None = None,
                      head: int | None = None) -> AttentionWeights:
  """Encodes and decodes a batch by teacher forcing, and returns all attention weights.

  Args:
    model: the Transformer. It uses the reference implementation of attention, whatever
      `config.attention` says.
    *batch: the arrays that `Transformer.__call__` takes.
    layer: number of a single layer, from 0, of both stacks; the result then has no axis L.
      None is all layers.
    head: number of a single head, from 0; the result then has no axis H. None is all heads.

  Raises:
    ValueError: there is no such layer in both stacks, or no such head.
  """
  config = model.config
  depths = {'encoder': config.num_layers, 'decoder': config.decoder_depth}
  for name, chosen, count in (('layer', layer, min(depths.values())),
                              ('head', head, config.num_heads)):
    if chosen is not None and not 0 <= chosen < count:
      raise ValueError(f'{name} must be at least 0 and below {count}; got {chosen}')
  _, stored = model.apply({'params': params}, *batch, mutable=[WEIGHTS])

  def weights_of(stack, attention):
    layers = range(depths[stack]) if layer is None else [layer]
    found = [stored[WEIGHTS][f'{stack}_{number}'][attention]['weights'][0] for number in layers]
    weights = jnp.stack(found) if layer is None else found[0]
    return weights if head is None else weights[..., head, :, :]

  return AttentionWeights(weights_of('encoder', 'self_attention'),
                          weights_of('decoder', 'self_attention'),
                          weights_of('decoder', 'cross_attention'))


def cross_attention_weights(model: Transformer, params, *batch) -> list[jax.Array]:
  """Returns the weights of cross-attention alone, of all layers from the bottom up.

  Args:
    model: the Transformer, as in `attention_weights`.
    params: its parameters.
    *batch: the arrays that `Transformer.__call__` takes.

  Returns:
    For each layer of the decoder float32 [B, H, T, S], from the target to the source.
  """
  _, stored = model.apply({'params': params}, *batch, mutable=[WEIGHTS])
  return [stored[WEIGHTS][f'decoder_{layer}']['cross_attention']['weights'][0]
          for layer in range(model.config.decoder_depth)]
