"""The gradients of the reference equal finite differences of its losses."""

import numpy as np
import pytest

from tests.as_users_run import reference

HEADS, HEAD, D, F, N, LAYERS = 2, 3, 5, 7, 11, 2
PAIRS = [([3, 5, 2], [7, 2]), ([9, 4, 4, 8, 2], [4, 10, 6, 2]), ([6, 2], [5, 5, 7, 9, 2])]


def attention():
  return {**{name: {'kernel': (D, HEADS, HEAD), 'bias': (HEADS, HEAD)}
             for name in ('query', 'key', 'value')},
          'output': {'kernel': (HEADS, HEAD, D), 'bias': (D,)}}


def shapes(norm):
  layer_norm = {'scale': (D,), 'bias': (D,)}
  sublayers = {'self_attention': attention(), 'cross_attention': attention(), 'feed_forward': {
      'inner': {'kernel': (D, F), 'bias': (F,)}, 'outer': {'kernel': (F, D), 'bias': (D,)}}}
  stacks = {'encoder': ('self_attention', 'feed_forward'), 'decoder': tuple(sublayers)}
  layers = {f'{stack}_{number}': {
      **{name: sublayers[name] for name in names},
      **{f'{name}_residual': {'layer_norm': layer_norm} for name in names}}
            for stack, names in stacks.items() for number in range(LAYERS)}
  ends = {f'{stack}_norm': layer_norm for stack in stacks} if norm == 'pre' else {}
  return {'target_embedding': {'table': (N, D)}, **layers, **ends}


def leaves(tree, path=()):
  if not isinstance(tree, dict):
    return [(path, tree)]
  return [leaf for name, each in tree.items() for leaf in leaves(each, (*path, name))]


def random(tree, rng):
  if isinstance(tree, dict):
    return {name: random(each, rng) for name, each in tree.items()}
  return rng.normal(size=tree)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_gradients_equal_finite_differences(norm):
  rng = np.random.default_rng(3)
  params = random(shapes(norm), rng)

  def loss():
    return reference.loss_and_gradients(params, PAIRS, 0.1, heads=HEADS, norm=norm)

  losses, gradients = loss()
  assert losses.tokens == 11 and losses.nll != losses.loss
  gradients = dict(leaves(gradients))
  for path, leaf in leaves(params):
    direction, step = rng.normal(size=leaf.shape), 1e-5
    ends = []
    for sign in (1, -1):
      leaf += sign * step * direction
      ends.append(loss()[0].loss)
      leaf -= sign * step * direction
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(np.sum(gradients[path] * direction), slope, rtol=1e-6, atol=1e-7,
                               err_msg=str(path))


def test_log_probs_are_those_of_the_loss():
  params = random(shapes('post'), np.random.default_rng(4))
  losses, _ = reference.loss_and_gradients(params, PAIRS, 0.1, heads=HEADS, norm='post')
  found = reference.log_probs_of(params, PAIRS, heads=HEADS, norm='post')
  assert [each.shape for each in found] == [(2, 2), (2, 4), (2, 5)]
  np.testing.assert_allclose(-sum(each[0].sum() for each in found), losses.nll, rtol=1e-12)
  assert all((each[1] >= each[0]).all() for each in found)
