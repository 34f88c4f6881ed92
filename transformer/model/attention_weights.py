"""What every head of every layer attends to."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.model.attention import WEIGHTS
from transformer.model.transformer import Transformer


class AttentionWeights(NamedTuple):
  """Attention weights, float32; L layers, rows sum to one where a query may attend at all.

  Attributes:
    encoder: [L, B, H, S, S], self-attention over the source.
    decoder: [L, B, H, T, T], masked self-attention over the target.
    cross: [L, B, H, T, S], attention of the target to the source.
  """

  encoder: jax.Array
  decoder: jax.Array
  cross: jax.Array


def attention_weights(model: Transformer, params, *batch, layer: int | None = None,
                      head: int | None = None) -> AttentionWeights:
  """Encodes and decodes by teacher forcing, and keeps the weights of all attention.

  Args:
    model: the Transformer; whatever kernel it is configured with, this takes the
      reference path.
    params: its parameters.
    *batch: the arrays that `Transformer.__call__` takes.
    layer: only this one, from 0; the axis L goes.
    head: only this one, from 0; the axis H goes.

  Returns:
    The weights.

  Raises:
    ValueError: there is no such layer or head.
  """
  config = model.config
  for name, chosen, count in (('layer', layer, config.num_layers),
                              ('head', head, config.num_heads)):
    if chosen is not None and not 0 <= chosen < count:
      raise ValueError(f'{name} must be at least 0 and below {count}; got {chosen}')
  _, kept = model.apply({'params': params}, *batch, mutable=[WEIGHTS])

  def of(stack, attention):
    layers = range(config.num_layers) if layer is None else [layer]
    found = [kept[WEIGHTS][f'{stack}_{number}'][attention]['weights'][0] for number in layers]
    weights = jnp.stack(found) if layer is None else found[0]
    return weights if head is None else weights[..., head, :, :]

  return AttentionWeights(of('encoder', 'self_attention'), of('decoder', 'self_attention'),
                          of('decoder', 'cross_attention'))
