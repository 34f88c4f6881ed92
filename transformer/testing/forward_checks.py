"""Checks of teacher forcing: what an output may depend on, dropout, gradients and types."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from transformer.errors import type_and_message
from transformer.model.transformer import init_params
from transformer.ops.dropout import random_key
from transformer.testing.rows import (
  FIRST,
  SOURCE_N,
  B,
  N,
  T,
  forced_rows,
  full_batch,
  inputs,
  pack,
  pair,
)
from transformer.testing.subject import Broken, Subject, require
from transformer.testing.tolerance import rounding
from transformer.training.objective import smoothed

_EFFECT = (
  'training would see the tokens that it is to predict, and translations would be far '
  'worse than its loss'
)


def future_targets_change_nothing(subject: Subject):
  """Checks that no output depends on later target tokens: gradients of exactly zero."""
  target = np.arange(N - T, N)  # Distinct tokens, which the source does not have.
  source = np.arange(FIRST, N - T)
  given = forced_rows([source], target[None])
  _check_gradients(subject.shallow, given, target)
  # A choice of tokens, such as the routing of experts, has no gradient.
  same = forced_rows([source] * T, np.tile(target, (T, 1)))
  changed_TT = np.where(np.tri(T, dtype=bool), target, np.roll(target, 1))
  other = (*same[:3], changed_TT.astype(np.int32), *same[4:])
  differ_TT = np.any(subject.forward(*same) != subject.forward(*other), axis=-1)
  leaks = np.argwhere(differ_TT & np.tri(T, dtype=bool))
  require(not len(leaks), f'output {leaks[:1, 1]} changes with later target tokens: {_EFFECT}')


def _check_gradients(subject, given, target_T):
  """Differentiates each output by the rows of the tables that belong to target tokens."""
  leaves, structure = jax.tree.flatten(subject.params)
  tables = {}
  for number, leaf in enumerate(leaves):
    if N in leaf.shape:
      tables[number] = leaf

  def outputs(tables):
    replaced = [tables.get(number, leaf) for number, leaf in enumerate(leaves)]
    params = jax.tree.unflatten(structure, replaced)
    x_BTD, _ = subject.model.apply({'params': params}, *given, deterministic=True)
    weights_D = np.random.default_rng(0).normal(size=x_BTD.shape[-1])
    return x_BTD[0] @ jnp.asarray(weights_D, x_BTD.dtype)

  jacobians = jax.jit(jax.jacrev(outputs))(tables)
  for number, jacobian in jacobians.items():
    axis = leaves[number].shape.index(N)
    by_token = np.moveaxis(np.asarray(jacobian), axis + 1, 1)[:, target_T]
    influence_TT = np.any(by_token.reshape(T, T, -1) != 0, axis=-1)
    leaks = np.argwhere(influence_TT & ~np.tri(T, dtype=bool))
    if len(leaks):
      output, token = leaks[0]
      raise Broken(f'output {output} depends on target token {token}, which comes later: {_EFFECT}')


def neighbours_change_nothing(subject: Subject):
  """Checks that other pairs of a row, padding and other rows change not a bit."""
  batch = full_batch()
  before = inputs(batch)
  wanted = np.asarray(subject.forward(*before))
  cases = (
    (
      _others_in_row,
      'the other pairs of a packed row change the outputs of a pair: training '
      'would learn from words of other sentences; use the segments in every mask',
    ),
    (
      _padding,
      'the tokens at padding change outputs: a translation would depend on the length '
      'of its batch; segment 0 is padding',
    ),
    (
      _other_rows,
      'other rows of a batch change outputs: the same sentence would have another '
      'translation in other company',
    ),
  )
  for others, sentence in cases:
    for row in range(B):
      for segment in (1, 2):
        after = list(before)
        for tokens, segments, size in ((0, 1, _source_size(subject)), (3, 4, N)):
          changed = others(before[segments], row, segment)
          after[tokens] = np.where(changed, (before[tokens] + 11) % size, before[tokens])
        mine_T = before[4][row] == segment
        got = np.asarray(subject.forward(*after))
        require(np.array_equal(got[row, mine_T], wanted[row, mine_T]), sentence)


def _source_size(subject):
  return N if subject.config.share_embeddings else SOURCE_N


def _others_in_row(segments, row, segment):
  changed = np.zeros(segments.shape, bool)
  changed[row] = (segments[row] != segment) & (segments[row] > 0)
  return changed


def _padding(segments, row, segment):
  del segment
  return (np.arange(B) == row)[:, None] & (segments == 0)


def _other_rows(segments, row, segment):
  del segment
  return np.broadcast_to((np.arange(B) != row)[:, None], segments.shape)


def packing_changes_nothing(subject: Subject):
  """Checks that a pair has the same outputs alone, packed, and with any padding."""
  first = pair(5, 7, 0)
  second = pair(11, 13, 1)
  packed = np.asarray(subject.forward(*inputs(pack([[first, second], [second, first]]))))
  alone = np.asarray(subject.forward(*inputs(pack([[first], [second]]))))
  packing = (
    'a pair has other outputs in a packed row than alone: a model that was trained on '
    'packed rows would translate with other numbers; use the positions, which count from '
    '0 in each sentence, and the segments'
  )
  for got, wanted in (
    (packed[0, :7], alone[0, :7]),
    (packed[0, 7:20], alone[1, :13]),
    (packed[1, :13], alone[1, :13]),
    (packed[1, 13:20], alone[0, :7]),
  ):
    require(subject.near(got, wanted), packing)
  tight = np.asarray(subject.forward(*inputs(pack([[first]], 5, 7))))
  require(
    subject.near(tight[0], alone[0, :7]),
    'the amount of padding changes outputs: a translation would depend on the length of the '
    'longest sentence in its batch',
  )


def eager_jit_and_vmap_agree(subject: Subject):
  """Checks that a compiled or vectorised model computes what the plain one does."""
  subject = subject.shallow
  batch = inputs(full_batch())
  jitted = subject.forward(*batch)
  params = subject.params
  require(
    subject.near(subject.log_probs(params, *batch), jitted),
    'jax.jit changes outputs: what you debug is not what trains; a function of arrays must '
    'have no state in Python',
  )
  turned = [np.roll(array, 1, axis=0) for array in batch]
  stacked = [np.stack(both) for both in zip(batch, turned, strict=True)]
  lifted = np.asarray(jax.jit(jax.vmap(lambda *batch: subject.log_probs(params, *batch)))(*stacked))
  require(
    subject.near(lifted[0], jitted) and subject.near(lifted[1], np.roll(jitted, 1, axis=0)),
    'jax.vmap changes outputs: code that vectorises the model, such as gradients of each '
    'sentence, would get wrong numbers; axes must be counted from the last',
  )


def dropout_needs_a_key(subject: Subject):
  """Checks that dropout acts only with deterministic=False, and depends on its key."""
  batch = inputs(full_batch())
  try:
    first = subject.apply(*batch, deterministic=True)[0]
    again = subject.apply(*batch, deterministic=True)[0]
  except Exception as error:  # Flax has one type of error for this, and JAX several.
    raise Broken(
      f'with deterministic=True and no dropout key the model fails, and so would '
      f'evaluation; pass `deterministic` on: {type_and_message(error)}'
    ) from error
  random = 'with deterministic=True outputs are random: two translations of a text would differ'
  require(np.array_equal(first, again), random)

  @functools.partial(jax.jit, static_argnums=1)
  def forward(key, deterministic):
    return subject.apply(*batch, deterministic=deterministic, rngs={'dropout': key})[0]

  keys = [random_key(seed) for seed in (1, 2)]
  require(np.array_equal(*(forward(key, True) for key in keys)), random)
  noisy = [np.asarray(forward(key, False)) for key in (*keys, keys[0])]
  require(
    np.array_equal(noisy[0], noisy[2]),
    'the same dropout key gives other outputs: a resumed run would not repeat its steps; '
    "take all randomness from self.make_rng('dropout')",
  )
  config = subject.config
  if max(config.dropout, config.attention_dropout, config.activation_dropout) > 0:
    require(
      not np.array_equal(noisy[0], noisy[1]),
      f'dropout keys change nothing with model.dropout={config.dropout}: training would be '
      f'without dropout; use it, or set --config.model.dropout=0',
    )


def empty_rows_have_finite_gradients(subject: Subject):
  """Checks the gradients of rows that hold only padding, as those at the end of an epoch."""
  gradient = jax.jit(
    jax.value_and_grad(
      lambda params, batch: smoothed(0.1).loss(subject.model, params, batch)['loss']
    )
  )
  for rows, what in (([[pair(5, 7, 0)], []], 'a row'), ([[], []], 'a batch')):
    value, gradients = gradient(subject.params, pack(rows))
    finite = [bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((value, gradients))]
    require(
      all(finite),
      f'{what} of padding makes a loss or a gradient that is not finite: one '
      f'such batch would end training; mask so that a query without keys gets zeros',
    )


def bfloat16_is_near_float32(subject: Subject):
  """Checks that a model with 16-bit activations has 32-bit parameters and nearly its outputs."""
  narrow = subject.with_config(dtype='bfloat16')
  shapes = jax.eval_shape(lambda: init_params(narrow.model, 0))
  types = {leaf.dtype for leaf in jax.tree.leaves(shapes)} - {jnp.dtype('float32')}
  require(
    not types,
    f'parameters have the types {sorted(map(str, types))} with '
    f'model.dtype=bfloat16: small updates would be rounded away; keep them float32',
  )
  batch = inputs(full_batch())
  real_BT = batch[4] > 0
  wanted = np.asarray(subject.forward(*batch))[real_BT]
  got = np.asarray(jax.jit(narrow.log_probs)(subject.params, *batch))[real_BT]
  difference = np.sqrt(np.mean((got - wanted) ** 2))
  # A layer rounds about sixteen times one after another; sums inside of products are float32.
  layers = subject.config.num_layers + subject.config.decoder_depth
  allowed = rounding(terms=16 * layers, size=float(np.std(wanted)), dtype=jnp.bfloat16)
  require(
    difference <= allowed,
    f'in bfloat16, log-probabilities differ from float32 by {difference:.2g}, of which '
    f'rounding explains {allowed:.2g}: training in bfloat16 would be worse; compute softmax, '
    f'norms and long sums in float32',
  )
