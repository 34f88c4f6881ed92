"""Checks of the inputs on which an output of teacher forcing may depend."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer.testing.model_under_test import CheckFailed, ModelUnderTest, require
from transformer.testing.random_batches import (
  FIRST,
  SOURCE_N,
  B,
  N,
  T,
  full_batch,
  inputs,
  pack,
  random_pair,
  teacher_forced_inputs,
)

_EFFECT = (
  'training would see the tokens that it should predict, and translations would be far worse '
  'than its loss'
)


def future_targets_change_nothing(subject: ModelUnderTest):
  """Checks causality: the gradient with respect to later target tokens is exactly zero."""
  target = np.arange(N - T, N)  # Distinct tokens, none of them in the source.
  source = np.arange(FIRST, N - T)
  _check_gradients(
    subject.shallow, teacher_forced_inputs([source], target[None]), target
  )
  # Discrete choices, such as expert routing, have no gradient, so also compare outputs.
  past_TT = np.tri(T, dtype=bool)
  sources = [source] * T
  original_TT = np.tile(target, (T, 1))
  changed_TT = np.where(past_TT, target, np.roll(target, 1))
  original = subject.forward(*teacher_forced_inputs(sources, original_TT))
  changed = subject.forward(*teacher_forced_inputs(sources, changed_TT))
  differ_TT = np.any(original != changed, axis=-1)
  leaks = np.argwhere(differ_TT & past_TT)
  require(
    not len(leaks), f'output {leaks[:1, 1]} changes with later target tokens: {_EFFECT}'
  )


def _check_gradients(subject, arguments, target_T):
  """Differentiates each output with respect to the embeddings of the target tokens."""
  leaves, structure = jax.tree.flatten(subject.params)
  tables = {}
  for index, leaf in enumerate(leaves):
    if N in leaf.shape:
      tables[index] = leaf
  rng = np.random.default_rng(0)

  def outputs(tables):
    replaced = [tables.get(index, leaf) for index, leaf in enumerate(leaves)]
    params = jax.tree.unflatten(structure, replaced)
    x_BTD, _ = subject.model.apply({'params': params}, *arguments, deterministic=True)
    x_TD = x_BTD[0]
    weights_D = rng.normal(size=x_TD.shape[-1])
    return x_TD @ jnp.asarray(weights_D, x_TD.dtype)

  jacobians = jax.jit(jax.jacrev(outputs))(tables)
  for index, jacobian in jacobians.items():
    axis = leaves[index].shape.index(N)
    by_token = np.moveaxis(np.asarray(jacobian), axis + 1, 1)
    of_target = by_token[:, target_T].reshape(T, T, -1)
    influence_TT = np.any(of_target, axis=-1)
    leaks = np.argwhere(np.triu(influence_TT, 1))
    if len(leaks):
      output, token = leaks[0]
      raise CheckFailed(
        f'output {output} depends on target token {token}, which comes later: {_EFFECT}'
      )


def neighbors_change_nothing(subject: ModelUnderTest):
  """Checks that other pairs in a row, padding and other rows do not change a bit of the outputs."""
  for make_mask, message in (
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
      'other rows of a batch change outputs, so the translation of a sentence would depend on '
      'its batch; compute no sums across rows',
    ),
  ):
    require(_keeps_outputs(subject, make_mask), message)


def _keeps_outputs(subject, make_mask) -> bool:
  """Returns whether the outputs of each pair stay the same if tokens at `make_mask` change."""
  batch = inputs(full_batch())
  source_BS, source_segments_BS, _, target_BT, target_segments_BT, _ = batch
  source_size = N if subject.config.share_embeddings else SOURCE_N
  expected = np.asarray(subject.forward(*batch))
  for row in range(B):
    for segment in (1, 2):
      in_source_BS = make_mask(source_segments_BS, row, segment)
      in_target_BT = make_mask(target_segments_BT, row, segment)
      other_source_BS = (source_BS + 11) % source_size
      other_target_BT = (target_BT + 11) % N
      changed = list(batch)
      changed[0] = np.where(in_source_BS, other_source_BS, source_BS)
      changed[3] = np.where(in_target_BT, other_target_BT, target_BT)
      actual = np.asarray(subject.forward(*changed))
      in_pair_T = target_segments_BT[row] == segment
      if not np.array_equal(actual[row, in_pair_T], expected[row, in_pair_T]):
        return False
  return True


def _others_in_row(segments, row, segment):
  """Returns a mask of the other pairs in a row."""
  return _row(segments, row) & (segments != segment) & (segments > 0)


def _padding(segments, row, _):
  """Returns a mask of the padding in a row."""
  return _row(segments, row) & (segments == 0)


def _other_rows(segments, row, _):
  """Returns a mask of the other rows."""
  return ~_row(segments, row)


def _row(segments, row):
  """Returns a mask of all positions in a row."""
  mask = np.zeros(segments.shape, bool)
  mask[row] = True
  return mask


def packing_changes_nothing(subject: ModelUnderTest):
  """Checks that a pair has the same outputs unpacked, packed, and with any amount of padding."""
  first = random_pair(5, 7, 0)
  second = random_pair(11, 13, 1)
  packed_batch = pack([[first, second], [second, first]])
  packed = np.asarray(subject.forward(*inputs(packed_batch)))
  separate_batch = pack([[first], [second]])
  separate = np.asarray(subject.forward(*inputs(separate_batch)))
  message = (
    'the outputs of a pair differ between a packed row and a row with only this pair, so a model '
    'trained on packed rows would translate worse; use the positions, which count from 0 in each '
    'sentence, and the segments'
  )
  of_first = separate[0, :7]
  of_second = separate[1, :13]
  require(
    subject.is_close(packed[0, :20], np.concatenate([of_first, of_second])), message
  )
  require(
    subject.is_close(packed[1, :20], np.concatenate([of_second, of_first])), message
  )
  unpadded = pack([[first]], 5, 7)
  tight = np.asarray(subject.forward(*inputs(unpadded)))
  require(
    subject.is_close(tight[0], of_first),
    'the amount of padding changes outputs: a translation would depend on the length of the '
    'longest sentence in its batch',
  )
