"""The alignment loss is a cross entropy over the keys that a query may attend to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.ops.alignment import alignment_loss

B, T, S = 3, 5, 7


@pytest.fixture(scope='module')
def arrays():
  rng = np.random.default_rng(1)
  mask_BTS = rng.random((B, T, S)) < 0.8
  links_BTS = mask_BTS & (rng.random((B, T, S)) < 0.3)
  mask_BTS[0, 0] = links_BTS[0, 0] = False  # Padding.
  links_BTS[1, 2], mask_BTS[1, 2] = False, True  # No link.
  links_BTS[2, 1] = mask_BTS[2, 1] = True  # Links to all keys.
  return (jnp.float32(rng.normal(0, 3, (B, T, S))), mask_BTS, links_BTS,
          np.float32(rng.random((B, T))))


def naive(scores_BTS, mask_BTS, links_BTS, weights_BT):
  """Returns the sums and the gradient by the scores, query by query."""
  loss, linked, gradient_BTS = 0.0, 0.0, np.zeros((B, T, S))
  for place in np.ndindex(B, T):
    if links_BTS[place].any():
      allowed = mask_BTS[place]
      attention = np.exp(np.float64(scores_BTS[place])) * allowed
      attention /= attention.sum()
      wanted = links_BTS[place] / links_BTS[place].sum()
      loss -= weights_BT[place] * np.sum(wanted[allowed] * np.log(attention[allowed]))
      linked += weights_BT[place]
      gradient_BTS[place] = weights_BT[place] * (attention - wanted)
  return loss, linked, gradient_BTS


def sums(scores_BTS, *others):
  found = alignment_loss(scores_BTS, *others)
  return found['alignment_loss'], found['linked']


def test_the_loss_and_its_gradient_are_those_of_the_formula(arrays):
  loss, linked, gradient_BTS = naive(*arrays)
  (found, count), gradient = jax.jit(jax.value_and_grad(sums, has_aux=True))(*arrays)
  assert float(found) == pytest.approx(loss, rel=1e-5)
  assert float(count) == pytest.approx(linked, rel=1e-6)
  np.testing.assert_allclose(gradient, gradient_BTS, atol=1e-6)
  assert not np.any(gradient[0, 0]) and not np.any(gradient[1, 2])


def test_scores_and_links_outside_the_mask_count_for_nothing(arrays):
  scores_BTS, mask_BTS, links_BTS, weights_BT = arrays
  run = jax.jit(jax.value_and_grad(sums, has_aux=True))
  wanted = run(*arrays)
  for scores, links in ((jnp.where(mask_BTS, scores_BTS, 1e30), links_BTS),
                        (jnp.where(mask_BTS, scores_BTS, -jnp.inf), links_BTS),
                        (scores_BTS, links_BTS | ~mask_BTS)):
    for one, other in zip(jax.tree.leaves(run(scores, mask_BTS, links, weights_BT)),
                          jax.tree.leaves(wanted), strict=True):
      np.testing.assert_array_equal(one, other)


def test_any_leading_axes_give_the_same_sums(arrays):
  wanted = sums(*arrays)
  each = jax.vmap(sums)(*arrays)
  deeper = sums(*(jnp.asarray(array)[:, None] for array in arrays))
  np.testing.assert_allclose(jax.tree.map(jnp.sum, each), wanted, rtol=1e-6)
  np.testing.assert_allclose(deeper, wanted, rtol=1e-6)


def test_attention_that_is_sure_of_the_links_has_no_loss_and_16_bits_are_enough(arrays):
  _, mask_BTS, links_BTS, weights_BT = arrays
  sure_BTS = jnp.where(links_BTS, 40.0, -40.0).astype(jnp.bfloat16)
  loss, linked, _ = naive(sure_BTS, mask_BTS, links_BTS, weights_BT)
  found = sums(sure_BTS, mask_BTS, links_BTS, weights_BT)
  np.testing.assert_allclose(found, (loss, linked), rtol=1e-6)
  single_BTS = np.eye(T, S, dtype=bool)[None] & np.ones((B, 1, 1), bool)
  assert float(sums(jnp.where(single_BTS, 40.0, -40.0), np.ones((B, T, S), bool), single_BTS,
                    weights_BT)[0]) == 0.0
