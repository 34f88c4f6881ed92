"""Transformers that are wrong in one way each."""

import dataclasses
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np

from transformer.model.transformer import Transformer

_CALLS = itertools.count()


def changed(of_output):
  """Returns a class of models with another output of teacher forcing, (x, segments) -> x."""

  class Changed(Transformer):
    def __call__(self, *batch, deterministic=True):
      x_BTD, output_ND = super().__call__(*batch, deterministic=deterministic)
      return of_output(x_BTD, batch[4]), output_ND

  return Changed


def given(change):
  """Returns a class of models that changes its batch: a function of the six arrays."""

  class Given(Transformer):
    def __call__(self, *batch, deterministic=True):
      return super().__call__(*change(*batch), deterministic=deterministic)

  return Given


NotCausal = changed(lambda x, _: x + 0.1 * jnp.roll(x, -1, axis=-2))


def routed(x_BTD, _):
  """Depends on the whole target without a gradient, like experts of limited capacity."""
  loads = jnp.argmax(jnp.sum(jax.lax.stop_gradient(x_BTD), axis=-2), axis=-1)
  return x_BTD * (1.0 + 0.01 * loads[..., None, None])


Routed = changed(routed)
BatchMean = changed(lambda x, _: x - jnp.mean(x, axis=0, keepdims=True))
LengthMean = changed(lambda x, _: x * (1.0 + x.shape[-2] / 100))
EmptyRows = changed(
  lambda x, segments: x * (10.0 / jnp.sum(segments > 0, axis=-1))[:, None, None]
)
Rounded = changed(
  lambda x, _: x + jnp.asarray(1000, x.dtype) - jnp.asarray(1000, x.dtype)
)
Impure = changed(lambda x, _: x + np.random.default_rng().normal())
Stateful = changed(
  lambda x, _: (
    x
    + jax.pure_callback(
      lambda: np.float32(next(_CALLS)), jax.ShapeDtypeStruct((), np.float32)
    )
  )
)
OneSegment = given(
  lambda s, s_segments, s_positions, t, t_segments, t_positions: (
    s,
    jnp.minimum(s_segments, 1),
    s_positions,
    t,
    jnp.minimum(t_segments, 1),
    t_positions,
  )
)
NoPadding = given(
  lambda s, s_segments, s_positions, t, t_segments, t_positions: (
    s,
    jnp.maximum(s_segments, 1),
    s_positions,
    t,
    t_segments,
    t_positions,
  )
)
RowPositions = given(
  lambda s, s_segments, s_positions, t, t_segments, t_positions: (
    s,
    s_segments,
    jnp.broadcast_to(jnp.arange(s.shape[-1]), s.shape),
    t,
    t_segments,
    t_positions,
  )
)


class AlwaysDropping(Transformer):
  """Ignores `deterministic`."""

  def __call__(self, *batch, deterministic=True):
    return super().__call__(*batch, deterministic=False)


class NeverDropping(Transformer):
  """Has no dropout."""

  def __call__(self, *batch, deterministic=True):
    return super().__call__(*batch, deterministic=True)


class BadSplits(Transformer):
  """Splits two axes of a matrix along one axis of the mesh."""

  sharding_rules = types.MappingProxyType({('inner', 'kernel'): ('tensor', 'tensor')})


class NotReordered(Transformer):
  """Forgets to say that its lineage is of hypotheses."""

  def start(self, *source):
    state, source = super().start(*source)
    lineage = dataclasses.replace(state.lineage_BWT, per_hypothesis=False)
    return state._replace(lineage_BWT=lineage), source


class Late(Transformer):
  """Takes each token for the one before."""

  def step(self, tokens_BW, index, state, source):
    logits_BWN, new = super().step(tokens_BW, index, state, source)
    early_BWN, _ = super().step(tokens_BW, jnp.maximum(index - 1, 0), state, source)
    return 0.5 * (logits_BWN + early_BWN), new


class StatefulStep(Transformer):
  """Counts its steps in Python."""

  def step(self, tokens_BW, index, state, source):
    logits_BWN, new = super().step(tokens_BW, index, state, source)
    count = jax.pure_callback(
      lambda _: np.int32(next(_CALLS)), jax.ShapeDtypeStruct((), np.int32), index
    )
    return jnp.roll(logits_BWN, count, axis=-1), new
