"""Random arrays for attention, and equation 1 in float64."""

import jax.numpy as jnp
import numpy as np

T, S, H, K, V = 5, 7, 3, 11, 13
EMPTY = 2  # the query that may attend to nothing
LEADING = [(), (3,), (2, 3)]


def arrays(leading=(3,), value_dim=V, dtype=jnp.float32, seed=0):
  """Returns random queries, keys, values, and a mask that hides all keys from query `EMPTY`."""
  rng = np.random.default_rng(seed)
  q, k, v = (
    jnp.asarray(rng.normal(size=(*leading, *shape)), dtype)
    for shape in ((T, H, K), (S, H, K), (S, H, value_dim))
  )
  mask = rng.random((*leading, T, S)) < 0.5
  mask[..., 0] = True
  mask[..., EMPTY, :] = False
  return q, k, v, jnp.asarray(mask)


def numpy_attention(q, k, v, mask=None):
  """Computes equation 1 in float64, one query and one head at a time."""
  q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
  leading = q.shape[:-3]
  mask = np.broadcast_to(True if mask is None else mask, (*leading, T, S))
  out = np.zeros((*leading, T, H, v.shape[-1]))
  weights = np.zeros((*leading, H, T, S))
  for *b, t, h in np.ndindex(*leading, T, H):
    row = mask[*b, t]
    if row.any():
      scores = k[*b, :, h] @ q[*b, t, h] / np.sqrt(q.shape[-1])
      exponentials = np.where(row, np.exp(scores - scores[row].max()), 0.0)
      weights[*b, h, t] = exponentials / exponentials.sum()
      out[*b, t, h] = weights[*b, h, t] @ v[*b, :, h]
  return out, weights
