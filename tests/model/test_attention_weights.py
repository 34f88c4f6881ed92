"""Attention weights are those that the outputs come from, for every layer and head."""

import chex
import jax
import numpy as np
import pytest

from transformer.model.attention_weights import attention_weights, cross_attention_weights

B, H, S, T = 2, 3, 19, 23


@pytest.fixture(scope='module')
def found(build, batch):
  tiny = build(norm='pre')
  return tiny, jax.jit(lambda params: attention_weights(tiny.model, params, *batch))(tiny.params)


def test_the_weights_of_a_query_sum_to_one_over_the_allowed_keys(found, batch):
  _, weights = found
  chex.assert_shape(list(weights), [(2, B, H, S, S), (2, B, H, T, T), (2, B, H, T, S)])
  source, target = batch[1], batch[4]
  past = np.tri(T, dtype=bool)
  for each, queries, keys, more in (
      (weights.encoder, source, source, True), (weights.decoder, target, target, past),
      (weights.cross, target, source, True)):
    may = (queries[:, :, None] == keys[:, None, :]) & (keys[:, None, :] > 0) & more
    may = np.broadcast_to(may[:, None], each.shape[1:])
    for layer in each:
      assert not np.any(np.asarray(layer)[~may])
      np.testing.assert_allclose(np.sum(layer, -1), np.any(may, -1), atol=1e-5)


def test_a_chosen_layer_and_head_are_a_part_of_all_weights(found, batch):
  tiny, weights = found
  for layer, head in ((1, 2), (0, None), (None, 1)):
    chosen = attention_weights(tiny.model, tiny.params, *batch, layer=layer, head=head)
    for got, every in zip(chosen, weights, strict=True):
      wanted = every if layer is None else every[layer]
      chex.assert_trees_all_close(got, wanted if head is None else wanted[..., head, :, :],
                                  atol=1e-5)
  layers, heads = (len({np.asarray(each).tobytes() for each in every})
                   for every in (weights.cross, weights.cross[0, 0]))
  assert (layers, heads) == (2, H)


def test_cross_attention_alone_is_that_of_all_weights_at_any_depth(found, build, batch):
  tiny, weights = found
  alone = cross_attention_weights(tiny.model, tiny.params, *batch)
  chex.assert_trees_all_close(alone, list(weights.cross), atol=1e-5)
  deep = build(norm='pre', num_layers=1, decoder_layers=3)
  assert len(cross_attention_weights(deep.model, deep.params, *batch)) == 3


@pytest.mark.parametrize(('chosen', 'message'), [
    ({'layer': 2}, 'layer must be at least 0 and below 2; got 2'),
    ({'head': -1}, 'head must be at least 0 and below 3; got -1')])
def test_an_unknown_layer_or_head_is_refused(build, batch, chosen, message):
  tiny = build(norm='pre')
  with pytest.raises(ValueError, match=message):
    attention_weights(tiny.model, tiny.params, *batch, **chosen)
