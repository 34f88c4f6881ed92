"""The loss that trains attention towards given links, as sums; the caller divides once."""

import jax
import jax.numpy as jnp

from transformer.ops.masks import check_boolean


def alignment_loss(scores_BTS, mask_BTS, links_BTS, weights_BT):
  """Cross entropy of attention against links: the alignment loss of Garg et al., 2019.

  The target distribution of a query is even over the keys that it is linked to. A query without
  a link has no loss.

  Args:
    scores_BTS: floats, a head's scores before the mask. B stands for any leading axes.
    mask_BTS: boolean, True where a query may attend to a key.
    links_BTS: boolean, True where a query is linked to a key. Links outside the mask are ignored.
    weights_BT: numbers, the weight of each query.

  Returns:
    A dict of float32 scalars:

    - `alignment_loss`: weighted sum of the cross entropies in nats, differentiable in
      `scores_BTS`; the arithmetic is float32,
    - `linked`: sum of the weights of the queries that have links.

  Raises:
    ValueError: the mask or the links are not boolean.
  """
  check_boolean('the mask', mask_BTS)
  check_boolean('the links', links_BTS)
  links_BTS = (links_BTS & mask_BTS).astype(jnp.float32)
  count_BT = jnp.sum(links_BTS, axis=-1)
  # The lowest finite number, not -inf: 0 · -inf is NaN.
  scores_BTS = jnp.where(mask_BTS, scores_BTS.astype(jnp.float32), jnp.finfo(jnp.float32).min)
  log_weights_BTS = jax.nn.log_softmax(scores_BTS, axis=-1)
  linked_BT = jnp.sum(links_BTS * log_weights_BTS, axis=-1) / jnp.maximum(count_BT, 1.0)
  weights_BT = weights_BT.astype(jnp.float32)
  return {'alignment_loss': -jnp.sum(weights_BT * linked_BT),
          'linked': jnp.sum(weights_BT * (count_BT > 0))}
