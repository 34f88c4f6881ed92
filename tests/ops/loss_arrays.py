"""Arrays for the tests of losses, and the loss from all logits at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from transformer.ops import losses

# B and T divide into devices and chunks, so they are not primes; all sizes differ.
B, T, N, D = 4, 6, 11, 5


def arrays(dtype=jnp.float32):
  """Returns a decoder's output, a projection, targets, and weights with some zeros."""
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(B, T, D)), dtype)
  output = jnp.asarray(rng.normal(size=(N, D)), jnp.float32)
  targets = jnp.asarray(rng.integers(0, N, (B, T)), jnp.int32)
  weights = rng.random((B, T)) + 0.5
  weights[1, 2:] = 0.0
  weights[3] = 0.0
  return x, output, targets, jnp.asarray(weights, jnp.float32)


def naive_loss(x, output, targets, weights, smoothing):
  """Computes optax's loss from all logits at once."""
  logits = jnp.einsum('...D,ND->...N', x.astype(jnp.float32), output)
  labels = optax.smooth_labels(jax.nn.one_hot(targets, N), smoothing)
  return jnp.sum(optax.softmax_cross_entropy(logits, labels) * weights)


def positions_at_once(monkeypatch, count):
  for name in ('_CHUNK_POSITIONS', '_ACCELERATOR_CHUNK_POSITIONS'):
    monkeypatch.setattr(losses, name, B * count)
