"""Numerical checks: JAX transformations, dropout, gradients and types."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer.errors import type_and_message
from transformer.model.transformer import init_params
from transformer.ops.dropout import random_key
from transformer.testing.model_under_test import CheckFailed, ModelUnderTest, require
from transformer.testing.random_batches import full_batch, inputs, pack, random_pair
from transformer.testing.tolerance import rounding_tolerance
from transformer.training.objective import cross_entropy


def eager_jit_and_vmap_agree(subject: ModelUnderTest):
  """Checks that the outputs agree between eager mode, `jax.jit` and `jax.vmap`."""
  subject = subject.shallow
  batch = inputs(full_batch())
  jitted = subject.forward(*batch)
  eager = subject.log_probs(subject.params, *batch)
  require(
    subject.is_close(eager, jitted),
    'jax.jit changes outputs: what you debug is not what trains; a function of arrays must '
    'have no state in Python',
  )
  stacked = [np.stack([array, np.roll(array, 1, axis=0)]) for array in batch]

  @jax.jit
  @jax.vmap
  def vectorized(*batch):
    return subject.log_probs(subject.params, *batch)

  lifted = np.asarray(vectorized(*stacked))
  expected = np.stack([jitted, np.roll(jitted, 1, axis=0)])
  require(
    subject.is_close(lifted, expected),
    'jax.vmap changes outputs: code that vectorizes the model, such as per-sentence '
    'gradients, would get wrong numbers; axes must be counted from the last',
  )


def dropout_follows_deterministic_and_key(subject: ModelUnderTest):
  """Checks that dropout is on only with deterministic=False, and depends on its key."""
  batch = inputs(full_batch())
  try:
    first = subject.apply(*batch, deterministic=True)[0]
    second = subject.apply(*batch, deterministic=True)[0]
  except Exception as error:  # Flax and JAX raise several types.
    raise CheckFailed(
      f'with deterministic=True and no dropout key the model fails, and so would '
      f'evaluation; pass `deterministic` on: {type_and_message(error)}'
    ) from error
  message = 'with deterministic=True outputs are random: two translations of a text would differ'
  require(np.array_equal(first, second), message)

  @jax.jit
  def calm(key):
    return subject.apply(*batch, deterministic=True, rngs={'dropout': key})[0]

  @jax.jit
  def noisy(key):
    return subject.apply(*batch, deterministic=False, rngs={'dropout': key})[0]

  first_key = random_key(1)
  second_key = random_key(2)
  require(np.array_equal(calm(first_key), calm(second_key)), message)
  require(
    np.array_equal(noisy(first_key), noisy(first_key)),
    'the same dropout key yields different outputs: a resumed run would not repeat its steps; '
    "take all randomness from self.make_rng('dropout')",
  )
  config = subject.config
  if max(config.dropout, config.attention_dropout, config.activation_dropout) > 0:
    require(
      not np.array_equal(noisy(first_key), noisy(second_key)),
      f'dropout keys change nothing with model.dropout={config.dropout}: training would be '
      f'without dropout; use it, or set --config.model.dropout=0',
    )


def empty_rows_have_finite_gradients(subject: ModelUnderTest):
  """Checks that rows of only padding, as at the end of an epoch, have finite gradients."""

  @jax.jit
  @jax.value_and_grad
  def gradient(params, batch):
    return cross_entropy(0.1).loss(subject.model, params, batch)['loss']

  pair = random_pair(5, 7, 0)
  for rows, name in (([[pair], []], 'a row'), ([[], []], 'a batch')):
    gradients = jax.tree.leaves(gradient(subject.params, pack(rows)))
    require(
      all(np.all(np.isfinite(leaf)) for leaf in gradients),
      f'{name} of padding makes a loss or a gradient that is not finite: one '
      f'such batch would end training; mask so that a query without keys gets zeros',
    )


def bfloat16_is_near_float32(subject: ModelUnderTest):
  """Checks that with bfloat16 activations, parameters are float32, and outputs close to float32."""
  narrow = subject.with_config(dtype='bfloat16')
  shapes = jax.eval_shape(lambda: init_params(narrow.model, 0))
  dtypes = {leaf.dtype for leaf in jax.tree.leaves(shapes)} - {jnp.dtype('float32')}
  require(
    not dtypes,
    f'parameters have the types {sorted(map(str, dtypes))} with '
    f'model.dtype=bfloat16: small updates would be rounded away; keep them float32',
  )
  batch = inputs(full_batch())
  real_BT = batch[4] > 0
  expected = np.asarray(subject.forward(*batch))[real_BT]
  narrow_log_probs = jax.jit(narrow.log_probs)
  actual = np.asarray(narrow_log_probs(subject.params, *batch))[real_BT]
  difference = np.sqrt(np.mean((actual - expected) ** 2))
  # A layer has about sixteen consecutive roundings; matrix products accumulate in float32.
  layers = subject.config.num_layers + subject.config.decoder_depth
  tolerance = rounding_tolerance(
    terms=16 * layers, size=float(np.std(expected)), dtype=jnp.bfloat16
  )
  require(
    difference <= tolerance,
    f'in bfloat16, log-probabilities differ from float32 by {difference:.2g}, of which '
    f'rounding explains {tolerance:.2g}: training in bfloat16 would be worse; compute softmax, '
    f'norms and long sums in float32',
  )
