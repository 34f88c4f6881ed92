"""A picture of attention shows every weight."""

import numpy as np

from transformer.decoding.attention_maps import picture


def test_a_picture_has_a_square_for_every_weight_of_every_head():
  rng = np.random.default_rng(0)
  for queries, keys, side in ((3, 5, 8), (33, 20, 7), (300, 7, 1)):
    weights = rng.dirichlet(np.ones(keys), (2, 3, queries)).astype(np.float32)
    drawn = picture(weights)
    tall, wide = queries * side + 4, keys * side + 4
    assert drawn.dtype == np.uint8 and drawn.shape == (2 * tall - 4, 3 * wide - 4)
    for layer, head, query, key in np.ndindex(2, 3, *weights.shape[2:]):
      top, left = layer * tall + query * side, head * wide + key * side
      square = drawn[top:top + side, left:left + side]
      assert (square == round(255 * (1 - float(weights[layer, head, query, key])))).all()
    assert (drawn[tall - 4:tall] == 160).all() and (drawn[:, wide - 4:wide] == 160).all()
