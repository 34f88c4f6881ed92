"""A model that is no Transformer: a bag of source words, and a recurrent network for the target."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer.model.search_state import StateArray
from transformer.ops import linear


class Gru(nn.Module):
  config: Any
  vocabulary_size: int
  source_vocabulary_size: int
  hidden: int = 11

  def setup(self):
    self.source_embedding = nn.Embed(self.source_vocabulary_size, self.hidden)
    self.target_embedding = nn.Embed(self.vocabulary_size, self.hidden)
    self.cell = nn.GRUCell(self.hidden)
    self.dropout = nn.Dropout(self.config.dropout)
    self.output = self.param('output', nn.initializers.normal(1.0),
                             (self.vocabulary_size, self.hidden))

  def _bag(self, tokens_BS, segments_BS, segments_BT):
    """Returns the mean of the embeddings of each target position's source, [B, T, D]."""
    mine_BTS = segments_BT[..., :, None] == segments_BS[..., None, :]
    mine_BTS = jnp.where((segments_BS > 0)[..., None, :], mine_BTS, False).astype(jnp.float32)
    total_BTD = mine_BTS @ self.source_embedding(tokens_BS)
    return total_BTD / jnp.maximum(jnp.sum(mine_BTS, axis=-1, keepdims=True), 1.0)

  def __call__(self, tokens_BS, segments_BS, positions_BS, inputs_BT, segments_BT, positions_BT, *,
               deterministic=True):
    x_BTD = self.target_embedding(inputs_BT) + self._bag(tokens_BS, segments_BS, segments_BT)
    x_BTD = self.dropout(x_BTD, deterministic=deterministic)

    def advance(self, carry_BD, inputs):
      x_BD, position_B = inputs
      carry_BD = jnp.where(position_B[:, None] == 0, 0.0, carry_BD)  # A new sentence.
      return self.cell(carry_BD, x_BD)

    scan = nn.scan(advance, variable_broadcast='params', split_rngs={'params': False}, in_axes=1,
                   out_axes=1)
    _, x_BTD = scan(self, jnp.zeros_like(x_BTD[:, 0]), (x_BTD, positions_BT))
    return x_BTD.astype(self.config.dtype), self.output

  def start(self, tokens_BS, segments_BS, positions_BS, beams):
    one_B1 = jnp.ones_like(segments_BS[:, :1])
    bag_B1D = self._bag(tokens_BS, segments_BS, one_B1)
    state_BWD = jnp.zeros((len(tokens_BS), beams, self.hidden))
    return StateArray(bag_B1D), StateArray(state_BWD, by_hypothesis=True)

  def step(self, tokens_BW, index, state_BWD, bag_B1D):
    x_BWD = self.target_embedding(tokens_BW) + bag_B1D
    state_BWD, x_BWD = self.cell(state_BWD, x_BWD)
    x_BWD = x_BWD.astype(self.config.dtype)
    return linear.logits(x_BWD, self.output), state_BWD
