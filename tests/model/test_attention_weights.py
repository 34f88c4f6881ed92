"""Attention weights are those that the outputs come from, for every layer and head."""

import chex
import jax
import numpy as np

from tests.model.conftest import B, H, S, T, build
from transformer.model.attention_weights import attention_weights


def test_the_weights_of_a_query_sum_to_one_over_the_allowed_keys(batch):
  tiny = build(norm_position='pre', num_layers=1, decoder_layers=2)
  weights = jax.jit(lambda params: attention_weights(tiny.model, params, *batch))(
    tiny.params
  )
  chex.assert_shape(list(weights), [(1, B, H, S, S), (2, B, H, T, T), (2, B, H, T, S)])
  source, target = batch[1], batch[4]
  past = np.tri(T, dtype=bool)
  for stack, queries, keys, more in (
    (weights.encoder, source, source, True),
    (weights.decoder, target, target, past),
    (weights.cross, target, source, True),
  ):
    may = (queries[:, :, None] == keys[:, None, :]) & (keys[:, None, :] > 0) & more
    may = np.broadcast_to(may[:, None], stack.shape[1:])
    for layer in stack:
      assert not np.any(np.asarray(layer)[~may])
      np.testing.assert_allclose(np.sum(layer, -1), np.any(may, -1), atol=1e-5)
  different = {
    np.asarray(head).tobytes() for layer in weights.cross for head in layer[0]
  }
  assert len(different) == 2 * H
